#include "levin/callbacks/backbone_finetuning.h"

#include <algorithm>
#include <cmath>

#include "levin/core/console.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/trainer.h"

namespace levin {

BackboneFinetuning::BackboneFinetuning(BackboneFinetuningOptions options, LambdaFunc lambda_func)
    : options_(checked(std::move(options), "BackboneFinetuningOptions")), lambda_func_(std::move(lambda_func)) {}

void BackboneFinetuning::setup(Trainer& trainer, LightningModule& module, Stage stage) {
  if (stage == Stage::fit) {
    unfrozen_ = false;
    group_.reset();
  }
  BaseFinetuning::setup(trainer, module, stage);
}

void BackboneFinetuning::on_fit_start(Trainer& trainer, LightningModule& module) {
  if (trainer.optimizers().size() != 1) {
    throw ConfigError("BackboneFinetuning: it works with 1 optimizer, and configure_optimizers returned " +
                      std::to_string(trainer.optimizers().size()) +
                      ". Derive from BaseFinetuning to say which one trains the backbone.");
  }
  BaseFinetuning::on_fit_start(trainer, module);
}

// Lightning ignores train_bn here, so BatchNorm layers always train before the backbone does.
void BackboneFinetuning::freeze_before_training(LightningModule& module) {
  freeze(*child(module, options_.backbone), options_.train_bn);
}

void BackboneFinetuning::finetune_function(LightningModule& module, int64_t epoch, Optimizer& optimizer) {
  if (epoch < options_.unfreeze_backbone_at_epoch) return;
  const double lr = optimizer.groups().at(0).lr;
  if (!unfrozen_) {  // also in a later epoch, if the run resumes from one without this callback
    previous_backbone_lr_ = options_.backbone_initial_lr.value_or(lr * options_.backbone_initial_ratio_lr);
    const bool added = unfreeze_and_add_param_group(*child(module, options_.backbone), optimizer, previous_backbone_lr_,
                                                    options_.initial_denom_lr, options_.train_bn);
    if (added) group_ = static_cast<int64_t>(optimizer.groups().size()) - 1;
    unfrozen_ = true;
  } else {
    double next = lambda_func_(epoch + 1) * previous_backbone_lr_;
    if (options_.should_align) next = std::min(next, lr);
    if (group_) optimizer.groups().at(static_cast<size_t>(*group_)).lr = next;
    previous_backbone_lr_ = next;
  }
  if (options_.verbose) report(lr, previous_backbone_lr_);
}

void BackboneFinetuning::report(double lr, double backbone_lr) const {
  const double unit = std::pow(10.0, options_.rounding);
  const auto text = [&](double value) { return number_text(std::round(value * unit) / unit); };
  Console::instance().print("BackboneFinetuning: lr " + text(lr) + ", the backbone's " + text(backbone_lr) + ".");
}

State BackboneFinetuning::state() const {
  State state = BaseFinetuning::state();
  if (state.empty()) return state;
  state.set("unfrozen", unfrozen_);
  state.set("group", group_);
  state.set("previous_backbone_lr", previous_backbone_lr_);
  return state;
}

void BackboneFinetuning::load_state(const State& saved) {
  if (!fitting_) return;
  BaseFinetuning::load_state(saved);
  unfrozen_ = saved.get<bool>("unfrozen");
  group_ = saved.get<std::optional<int64_t>>("group");
  previous_backbone_lr_ = saved.get<double>("previous_backbone_lr");
}

}  // namespace levin
