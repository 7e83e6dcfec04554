#include "levin/callbacks/stochastic_weight_averaging.h"

#include <c10/core/GradMode.h>

#include <algorithm>

#include "levin/callbacks/batch_norm.h"
#include "levin/core/process/console.h"
#include "levin/strategies/strategy.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/trainer.h"

namespace levin {

StochasticWeightAveraging::StochasticWeightAveraging(StochasticWeightAveragingOptions options)
    : options_(checked(std::move(options), "StochasticWeightAveragingOptions")) {}

void StochasticWeightAveraging::check(Trainer& trainer, const LightningModule& module) const {
  const std::string who = "StochasticWeightAveraging: ";
  if (!module.automatic_optimization()) {
    throw ConfigError(who +
                      "the module uses manual optimization, so its schedule cannot be replaced. Use WeightAveraging.");
  }
  if (trainer.optimizers().size() != 1) {
    throw ConfigError(who + "it works with 1 optimizer, and configure_optimizers returned " +
                      std::to_string(trainer.optimizers().size()) + ". Use WeightAveraging.");
  }
  if (trainer.lr_schedulers().size() > 1) {
    throw ConfigError(who + "it replaces 1 learning-rate scheduler, and configure_optimizers returned " +
                      std::to_string(trainer.lr_schedulers().size()) + ". Return one, e.g. a SequentialLR.");
  }
  if (trainer.plan().max_epochs == kUnlimited && std::holds_alternative<double>(options_.swa_epoch_start)) {
    throw ConfigError(who + "swa_epoch_start " + number_text(std::get<double>(options_.swa_epoch_start)) +
                      " is a fraction of max_epochs, which is not limited. Set TrainerOptions.max_epochs, or give the "
                      "epoch as an integer.");
  }
}

void StochasticWeightAveraging::on_fit_start(Trainer& trainer, LightningModule& module) {
  check(trainer, module);
  check_optimizers(trainer);
  const int64_t max_epochs = trainer.plan().max_epochs;
  const auto* fraction = std::get_if<double>(&options_.swa_epoch_start);
  const int64_t first = fraction != nullptr ? static_cast<int64_t>(static_cast<double>(max_epochs) * *fraction)
                                            : std::get<int64_t>(options_.swa_epoch_start);
  start_ = std::max<int64_t>(0, first - 1);
  if (start_ >= max_epochs && !trainer.plan().fast_dev_run) {
    Console::instance().warn("StochasticWeightAveraging: swa_epoch_start is " + std::to_string(first) +
                             ", and max_epochs " + std::to_string(max_epochs) + ": nothing will be averaged.");
  }
  weights_.hold(module, AveragedWeights::Buffers::left_alone, options_.device);
  latest_update_epoch_ = -1;
  if (!loaded_) return;
  latest_update_epoch_ = loaded_->get<int64_t>("latest_update_epoch");
  if (loaded_->has("n_averaged")) {
    weights_.load_state_dict(*loaded_);
    replace_scheduler(trainer);  // its state is read after this hook
  }
  loaded_.reset();
}

void StochasticWeightAveraging::replace_scheduler(Trainer& trainer) const {
  auto scheduler = std::make_shared<SWALR>(SWALROptions{.swa_lr = options_.swa_lrs,
                                                        .anneal_epochs = options_.annealing_epochs,
                                                        .anneal_strategy = options_.annealing_strategy});
  scheduler->attach(trainer.optimizers()[0].optimizer());
  auto& schedulers = trainer.lr_schedulers();
  schedulers.clear();
  schedulers.push_back({.scheduler = std::move(scheduler)});
}

// As in Lightning, the weights at the start of each epoch are averaged, so those after the last epoch are not included.
void StochasticWeightAveraging::on_train_epoch_start(Trainer& trainer, LightningModule&) {
  const int64_t epoch = trainer.current_epoch();
  if (epoch < start_ || epoch <= latest_update_epoch_) return;
  if (weights_.count() == 0) replace_scheduler(trainer);
  const c10::AutoGradMode no_grad(false);
  weights_.update(update_mean);
  latest_update_epoch_ = epoch;
}

// In Lightning only a run that reaches max_epochs ends with the average, and the pass for BatchNorm is another epoch
// with all hooks; here every end counts, also early stopping, and the pass only runs training_step.
void StochasticWeightAveraging::on_train_end(Trainer& trainer, LightningModule& module) {
  if (weights_.count() > 0) {
    weights_.swap_in();
    const detail::BatchNormRecount recount(module);
    if (recount.is_needed()) {
      trainer.forward_training_batches();
      recount.average(trainer.strategy().ranks());
    }
  }
  AveragingCallback::on_train_end(trainer, module);
}

int64_t StochasticWeightAveraging::held_bytes(const LightningModule& module) const {
  return AveragedWeights::bytes_of(module, AveragedWeights::Buffers::left_alone, options_.device);
}

State StochasticWeightAveraging::state_dict() const {
  State state = weights_.state_dict();
  state.set("latest_update_epoch", latest_update_epoch_);
  return state;
}

void StochasticWeightAveraging::load_state_dict(const State& saved) {
  if (fitting_) loaded_ = saved;
}

}  // namespace levin
