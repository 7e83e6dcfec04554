#include "levin/callbacks/learning_rate_finder.h"

#include <cmath>
#include <filesystem>

#include "levin/core/console.h"
#include "levin/core/count_of.h"
#include "levin/core/files.h"
#include "levin/core/short_number.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/trainer.h"
#include "levin/trainer/trial_runs.h"

namespace levin {

namespace {

constexpr const char* kName = "LearningRateFinder";

std::string named(const std::string& text) {
  return "LearningRateFinder: " + text;
}

}  // namespace

LearningRateFinder::LearningRateFinder(LearningRateFinderOptions options)
    : options_(checked(std::move(options), "LearningRateFinderOptions")),
      curve_(options_.mode == LrSpacing::exponential) {
  if (options_.min_lr < options_.max_lr) return;
  throw ConfigError("LearningRateFinderOptions.min_lr: " + short_number(options_.min_lr) +
                    " is not less than max_lr, " + short_number(options_.max_lr) + ". Give an interval to try.");
}

void LearningRateFinder::setup(Trainer&, LightningModule&, Stage stage) {
  if (stage == Stage::fit || searched_) return;
  throw ConfigError(
      named("it tries training steps, and there is no training here. Call fit first, or drop the callback."));
}

void LearningRateFinder::on_fit_start(Trainer& trainer, LightningModule& module) {
  if (trainer.plan().fast_dev_run) return;
  if (!module.automatic_optimization()) {
    throw ConfigError(
        named("with manual optimization training_step decides what is stepped. Set the learning rate in "
              "configure_optimizers, and drop the callback."));
  }
  if (!searched_) search(trainer);
  if (options_.update) TrialRuns::keep_learning_rate(trainer, factor_);
}

// The first step has min_lr and the last max_lr. In Lightning the first step is one ratio above min_lr.
double LearningRateFinder::lr_of(int64_t step) const {
  const double share = static_cast<double>(step) / static_cast<double>(options_.num_training - 1);
  if (options_.mode == LrSpacing::linear) return options_.min_lr + share * (options_.max_lr - options_.min_lr);
  return options_.min_lr * std::pow(options_.max_lr / options_.min_lr, share);
}

void LearningRateFinder::search(Trainer& trainer) {
  double configured = 0;
  {
    TrialRuns trials(trainer, kName);
    configured = trials.learning_rate();
    if (configured == 0) {
      throw ConfigError(
          named("the first parameter group's learning rate is 0, to which no other has a ratio. Configure "
                "any other."));
    }
    trials.try_learning_rates(
        options_.num_training, [this](int64_t step) { return lr_of(step); },
        [this](int64_t step, double loss) {
          curve_.add(lr_of(step), loss);
          return !options_.early_stop_threshold || !curve_.diverges(*options_.early_stop_threshold);
        });
  }
  searched_ = true;
  suggestion_ = curve_.suggestion();
  if (!options_.plot.empty() && trainer.global_rank() == 0) write_files();
  const std::string steps =
      count_of(curve_.points().size(), "step") + ", up to " + short_number(curve_.points().back().lr);
  if (!suggestion_) {
    return Console::instance().warn(named("nothing to suggest after " + steps + "; the learning rate stays " +
                                          short_number(configured) +
                                          ". Take more steps (num_training), or a smaller min_lr."));
  }
  factor_ = *suggestion_ / configured;
  Console::instance().print(named("the loss falls most steeply at " + short_number(*suggestion_) + " (" + steps +
                                  "). " + (options_.update ? "Training uses it" : "It is not used") +
                                  "; the configured rate is " + short_number(configured) + "."));
}

void LearningRateFinder::write_files() const {
  write_output(options_.plot, curve_.svg());
  write_output(std::filesystem::path(options_.plot).replace_extension(".csv").string(), curve_.csv());
}

State LearningRateFinder::state() const {
  State state;
  if (!searched_) return state;
  state.set("factor", factor_);
  if (suggestion_) state.set("suggestion", *suggestion_);
  return state;
}

void LearningRateFinder::load_state(const State& saved) {
  searched_ = true;
  factor_ = saved.get<double>("factor");
  if (saved.has("suggestion")) suggestion_ = saved.get<double>("suggestion");
}

}  // namespace levin
