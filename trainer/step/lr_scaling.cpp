#include "levin/trainer/step/lr_scaling.h"

#include <cmath>
#include <string>

#include "levin/core/console.h"
#include "levin/core/count_of.h"
#include "levin/core/short_number.h"
#include "levin/trainer/accumulation_schedule.h"
#include "levin/trainer/optimizer_config.h"
#include "levin/trainer/run/loader_set.h"
#include "levin/trainer/run/run.h"

namespace levin {

namespace {

// Note [What lr_scale scales by]
// Learning rates are written for one batch of the configured data.batch_size on one device. The factor is the samples
// of one optimizer step over that: batch size (as BatchSizeFinder may have found it) times ranks times batches that are
// accumulated. So a run is the same on one device and on eight.
int64_t samples_of_step(const Run& run) {
  const int64_t batch = run.fit.train.loaders.empty() ? 0 : run.fit.train.loaders[0]->batch_size().value_or(0);
  return batch * run.strategy->world_size() * run.fit.accumulate_grad_batches;
}

double size_ratio(const Run& run) {
  const int64_t configured = run.fit.tuning.configured_batch_size, samples = samples_of_step(run);
  return configured == 0 || samples == 0 ? 1 : static_cast<double>(samples) / static_cast<double>(configured);
}

// Goyal et al. 2017 (https://arxiv.org/abs/1706.02677): in proportion; Krizhevsky 2014
// (https://arxiv.org/abs/1404.5997): with the square root, which keeps the variance of the updates.
double factor_for(LrScale scale, double ratio) {
  if (scale == LrScale::linear) return ratio;
  return scale == LrScale::sqrt ? std::sqrt(ratio) : 1;
}

void say_scale(const Run& run, double ratio, double factor) {
  const int64_t ranks = run.strategy->world_size(), batches = run.fit.accumulate_grad_batches;
  std::string parts;
  if (ranks > 1) parts += " on " + count_of(ranks, "rank");
  if (batches > 1) parts += ", " + count_of(batches, "batch", "batches") + " accumulated";
  Console::instance().print("lr_scale " + enum_word(run.fit.lr_scale) + ": an optimizer step takes " +
                            count_of(samples_of_step(run), "sample") + parts + ", " + short_number(ratio) +
                            " times the configured batch size of " +
                            std::to_string(run.fit.tuning.configured_batch_size) +
                            ": learning rates are multiplied by " + short_number(factor) + ".");
}

void refuse_own_rates(const Run& run, const OptimizerConfig& config) {
  for (const auto& scheduled : config.schedulers()) {
    const std::string name = scheduled.scheduler->name();
    if (name != "OneCycleLR" && name != "CyclicLR") continue;
    const bool scaled = run.fit.lr_scale != LrScale::none;
    throw ConfigError(
        (scaled ? "TrainerOptions.lr_scale: " : "LearningRateFinder: ") + name +
        " takes its learning rates from its own options, and not from the optimizer's. Set them for the " +
        (scaled ? "batch size, and leave lr_scale at none." : "model, and drop the callback."));
  }
}

}  // namespace

void scale_learning_rates(Run& run, const OptimizerConfig& config) {
  if (run.fit.lr_scale != LrScale::none && accumulation_schedule(run) != nullptr) {
    throw ConfigError("TrainerOptions.lr_scale: " + enum_word(run.fit.lr_scale) +
                      " has no single factor where GradientAccumulationScheduler changes the samples of a step from "
                      "epoch to epoch. Leave it at none, or set accumulate_grad_batches and drop the callback.");
  }
  if (run.fit.lr_scale != LrScale::none && !run.fit.train.loaded) load_train_loader(run);
  const double ratio = run.fit.lr_scale == LrScale::none ? 1 : size_ratio(run);
  const double scale = factor_for(run.fit.lr_scale, ratio);
  const double factor = scale * run.fit.tuning.lr_factor;
  run.fit.lr_factor = factor;
  if (factor == 1) return;
  refuse_own_rates(run, config);
  if (scale != 1) say_scale(run, ratio, scale);
  for (const auto& optimizer : config.optimizers()) {
    for (auto& group : optimizer->groups()) group.lr *= factor;
  }
}

}  // namespace levin
