// For callbacks that train a part of a module first and the rest later, with its own learning rate:
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

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "levin/trainer/callback.h"

namespace torch::nn {
class Module;
}

namespace levin {

/// The parameters that require gradients; configure_optimizers must use these with a finetuning callback.
[[nodiscard]] std::vector<at::Tensor> trainable_parameters(const torch::nn::Module& module);

class BaseFinetuning : public Callback {
 public:
  void setup(Trainer& trainer, LightningModule& module, Stage stage) override;
  /// Throws ConfigError if an optimizer holds parameters that are frozen.
  void on_fit_start(Trainer& trainer, LightningModule& module) override;
  void on_train_start(Trainer&, LightningModule&) override;
  void on_train_epoch_start(Trainer& trainer, LightningModule& module) override;

  [[nodiscard]] State state() const override;
  void load_state(const State& saved) override;
  [[nodiscard]] std::string state_key() const override { return "BaseFinetuning"; }

 protected:
  /// Called before configure_optimizers.
  virtual void freeze_before_training(LightningModule& module) = 0;
  /// Called at the start of every epoch for every optimizer.
  virtual void finetune_function(LightningModule& module, int64_t epoch, Optimizer& optimizer) = 0;

  /// The submodule called `name` ("encoder.backbone" for one inside another); throws ConfigError naming those that
  /// exist.
  [[nodiscard]] std::shared_ptr<torch::nn::Module> child(LightningModule& module, const std::string& name) const;

  /// No parameter of `part` gets a gradient, and its BatchNorm layers keep their statistics: they run in eval mode.
  /// `train_bn`: BatchNorm layers continue to train.
  void freeze(torch::nn::Module& part, bool train_bn = true);
  /// All parameters of `part` get gradients, and its BatchNorm layers train. `train_bn` false: those stay as they are.
  void make_trainable(torch::nn::Module& part, bool train_bn = true);
  /// The parameters of `part` that require gradients, or those that do not. `train_bn` false: without BatchNorm's.
  [[nodiscard]] static std::vector<at::Tensor> filter_params(torch::nn::Module& part, bool train_bn = true,
                                                             bool requires_grad = true);
  /// Makes `part` trainable and adds its parameters that the optimizer does not have yet as a new group with `lr`;
  /// unset: the first group's divided by `initial_denom_lr`. Returns whether there were any.
  bool unfreeze_and_add_param_group(torch::nn::Module& part, Optimizer& optimizer,
                                    std::optional<double> lr = std::nullopt, double initial_denom_lr = 10.0,
                                    bool train_bn = true);

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

}  // namespace levin
