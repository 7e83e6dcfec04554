// Finetuning: callbacks that train a part of a module first and the rest later, with its own learning rate.
//
//   class TrainHeadFirst : public levin::BaseFinetuning {
//     void freeze_before_training(levin::LightningModule& module) override { freeze(*child(module, "features")); }
//     void finetune_function(levin::LightningModule& module, int64_t epoch, levin::Optimizer& optimizer) override {
//       if (epoch == 5) unfreeze_and_add_param_group(*child(module, "features"), optimizer);
//     }
//     std::string state_key() const override { return "TrainHeadFirst"; }
//   };
//
// configure_optimizers gets the module with its frozen parts frozen and must leave those out:
// trainable_parameters(*this). A checkpoint records which parameters are trained and in which groups, so that a resumed
// run restores the groups before the optimizer's state.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/trainer/callback.h"

namespace torch::nn {
class Module;
}

namespace levin {

/// Returns the parameters that require gradients; configure_optimizers must use these with a finetuning callback.
[[nodiscard]] std::vector<at::Tensor> trainable_parameters(const torch::nn::Module& module);

/// The base of callbacks that freeze parts of a module and train them later. Hooks run on every rank.
class BaseFinetuning : public Callback {
 public:
  void setup(Trainer& trainer, LightningModule& module, Stage stage) override;
  /// Throws ConfigError if an optimizer holds parameters that are frozen, and CheckpointError if the checkpoint trains
  /// parameters or optimizers that the module does not have.
  void on_fit_start(Trainer& trainer, LightningModule& module) override;
  void on_train_start(Trainer&, LightningModule&) override;
  void on_train_epoch_start(Trainer& trainer, LightningModule& module) override;

  [[nodiscard]] std::string state_key() const override { return "BaseFinetuning"; }

 protected:
  /// Called before configure_optimizers.
  virtual void freeze_before_training(LightningModule& module) = 0;
  /// Called at the start of every epoch for every optimizer. Groups that it adds may only hold the module's parameters;
  /// otherwise the hook throws Error.
  virtual void finetune_function(LightningModule& module, int64_t epoch, Optimizer& optimizer) = 0;

  /// Returns the submodule called `name` ("encoder.backbone" for a nested submodule). Throws ConfigError with the names
  /// that exist if there is none.
  [[nodiscard]] std::shared_ptr<torch::nn::Module> child(LightningModule& module, const std::string& name) const;

  /// No parameter of `part` gets a gradient, and its BatchNorm layers keep their statistics: they run in eval mode.
  /// `train_bn`: BatchNorm layers continue to train.
  void freeze(torch::nn::Module& part, bool train_bn = true);
  /// All parameters of `part` get gradients, and its BatchNorm layers train. `train_bn` false: BatchNorm layers stay
  /// unchanged.
  void make_trainable(torch::nn::Module& part, bool train_bn = true);
  /// Returns the parameters of `part` that require gradients, or that do not. `train_bn` false: without BatchNorm's.
  [[nodiscard]] static std::vector<at::Tensor> filter_params(torch::nn::Module& part, bool train_bn = true,
                                                             bool requires_grad = true);
  /// Makes `part` trainable and adds its parameters that the optimizer does not have yet as a new group with `lr`;
  /// unset: the first group's divided by `initial_denom_lr`. Returns whether there were any.
  bool unfreeze_and_add_param_group(torch::nn::Module& part, Optimizer& optimizer,
                                    std::optional<double> lr = std::nullopt, double initial_denom_lr = 10.0,
                                    bool train_bn = true);

  [[nodiscard]] State default_state_dict() const override;
  void load_default_state_dict(const State& saved) override;

  bool fitting_ = false;  // the running entry point is fit

 private:
  void check_optimizers(Trainer& trainer, LightningModule& module) const;
  void restore(Trainer& trainer, LightningModule& module);
  void note_groups(LightningModule& module, int64_t optimizer_index, const Optimizer& optimizer, size_t first);
  void note_trainable(LightningModule& module);

  std::set<torch::nn::Module*> frozen_norms_;  // BatchNorm layers in eval mode
  // What a checkpoint needs.
  std::vector<std::vector<std::string>> groups_;  // names in each group that was added
  std::vector<int64_t> group_optimizers_;         // the optimizer of each
  std::vector<std::string> trainable_;            // parameters that require gradients
  std::vector<std::string> frozen_norm_names_;
  bool noted_ = false;      // by this run
  bool restoring_ = false;  // from a checkpoint that the optimizers do not match yet
};

/// Options of BackboneFinetuning.
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
              "the ratio of its first lr to the lr of the optimizer's first group")
            .above(0.0),
        field("backbone_initial_lr", &O::backbone_initial_lr, "its first lr; null: given by the ratio")
            .check([](const auto& lr) { return !lr || *lr > 0; }, "> 0"),
        field("should_align", &O::should_align, "never let its lr exceed the first group's lr"),
        field("initial_denom_lr", &O::initial_denom_lr,
              "for subclasses that give no lr: the first group's divided by this")
            .above(0.0),
        field("train_bn", &O::train_bn, "its BatchNorm layers train from the start; false: they stay frozen"),
        field("verbose", &O::verbose, "print both learning rates at every epoch"),
        field("rounding", &O::rounding, "digits after the decimal point in verbose output").min(0).max(17),
        field("backbone", &O::backbone, "the submodule's name; a.b for a nested one").not_empty());
  }
};

/// A callback that trains a new head on a frozen backbone first, then both, the backbone with a learning rate that
/// grows:
///
///   .callbacks = {levin::BackboneFinetuning({.unfreeze_backbone_at_epoch = 5})}
///
/// The module has a submodule "backbone", and its configure_optimizers uses trainable_parameters(*this). Hooks run on
/// every rank.
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
  [[nodiscard]] State state_dict() const override;
  void load_state_dict(const State& saved) override;
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
