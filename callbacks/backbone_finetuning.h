// Trains a new head on a frozen backbone first, then both, the backbone with a learning rate that grows:
//
//   .callbacks = {levin::BackboneFinetuning({.unfreeze_backbone_at_epoch = 5})}
//
// The module has a submodule "backbone", and its configure_optimizers uses trainable_parameters(*this).
#pragma once

#include <functional>

#include "levin/callbacks/base_finetuning.h"
#include "levin/core/fields.h"

namespace levin {

struct BackboneFinetuningOptions {
  int64_t unfreeze_backbone_at_epoch = 10;  // from 0
  double backbone_initial_ratio_lr = 10e-2;
  std::optional<double> backbone_initial_lr = std::nullopt;
  bool should_align = true;
  double initial_denom_lr = 10.0;
  bool train_bn = true;
  bool verbose = false;
  int64_t rounding = 12;
  std::string backbone = "backbone";

  template <class = void>
  static auto fields() {
    using O = BackboneFinetuningOptions;
    return levin::fields(
        field("unfreeze_backbone_at_epoch", &O::unfreeze_backbone_at_epoch,
              "the epoch, from 0, in which the backbone begins to train")
            .min(0),
        field("backbone_initial_ratio_lr", &O::backbone_initial_ratio_lr,
              "the ratio of its first lr to that of the optimizer's first group")
            .above(0.0),
        field("backbone_initial_lr", &O::backbone_initial_lr, "its first lr; null: given by the ratio")
            .check([](const auto& lr) { return !lr || *lr > 0; }, "> 0"),
        field("should_align", &O::should_align, "never let its lr exceed that of the first group"),
        field("initial_denom_lr", &O::initial_denom_lr,
              "for subclasses that give no lr: the first group's divided by this")
            .above(0.0),
        field("train_bn", &O::train_bn, "its BatchNorm layers train from the start; false: they stay frozen"),
        field("verbose", &O::verbose, "print both learning rates at every epoch"),
        field("rounding", &O::rounding, "digits after the decimal point in verbose output").min(0).max(17),
        field("backbone", &O::backbone, "the submodule's name; a.b for a nested one").not_empty());
  }
};

class BackboneFinetuning final : public BaseFinetuning {
 public:
  using Options = BackboneFinetuningOptions;
  /// The factor of the backbone's lr in the epoch before `epoch`.
  using LambdaFunc = std::function<double(int64_t epoch)>;
  static double multiplicative(int64_t /*epoch*/) { return 2.0; }

  explicit BackboneFinetuning(Defaults = {}) : BackboneFinetuning(BackboneFinetuningOptions()) {}
  /// `lambda_func`: the growth factor of the backbone's lr in each epoch; C++ only.
  explicit BackboneFinetuning(BackboneFinetuningOptions options, LambdaFunc lambda_func = multiplicative);

  void setup(Trainer& trainer, LightningModule& module, Stage stage) override;
  /// Throws ConfigError if there are several optimizers.
  void on_fit_start(Trainer& trainer, LightningModule& module) override;
  [[nodiscard]] State state() const override;
  void load_state(const State& saved) override;
  [[nodiscard]] std::string state_key() const override { return "BackboneFinetuning"; }

 protected:
  void freeze_before_training(LightningModule& module) override;
  void finetune_function(LightningModule& module, int64_t epoch, Optimizer& optimizer) override;

 private:
  void report(double lr, double backbone_lr) const;

  BackboneFinetuningOptions options_;
  LambdaFunc lambda_func_;
  bool unfrozen_ = false;
  std::optional<int64_t> group_ = std::nullopt;  // the backbone's; unset if it had no parameter left to add
  double previous_backbone_lr_ = 0;
};

}  // namespace levin
