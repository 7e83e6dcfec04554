// The weights that a fit hands over when it ends, for example to save_to: the best checkpoint's or the module's.
//
//   void on_fit_end() override {
//     const WeightsAtEnd weights(trainer(), *this, WhichCheckpoint::best);
//     save_lora(*model_, "adapter", weights, trainer().is_global_zero());
//     print("wrote adapter with " + weights.text());
//   }
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <memory>
#include <string>

#include "levin/core/options/which_checkpoint.h"

namespace levin {

class LightningModule;
class Trainer;

/// The weights of a finished fit, by parameter, complete even if a strategy shards them. It refers to the trainer, and
/// to the module's parameters.
class WeightsAtEnd {
 public:
  /// Chooses the weights. For on_fit_end, on every rank. Waits until the checkpoints are on the disk. Without a
  /// checkpoint callback that monitors a metric, or if its best file cannot be read (a warning names it), the weights
  /// are the module's.
  WeightsAtEnd(Trainer& trainer, const LightningModule& module, WhichCheckpoint which);

  /// Returns the whole value of one of the module's parameters; on ranks other than 0 it may be undefined. Every rank
  /// calls it for the same parameters. Throws CheckpointError if the best checkpoint does not contain the parameter,
  /// and Error for a tensor that is not a parameter.
  at::Tensor operator()(const at::Tensor& parameter) const;

  /// Returns which weights they are: "the best checkpoint's weights (val_loss 0.25, runs/best.ckpt)".
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  struct Saved;

  Trainer* trainer_;
  std::shared_ptr<const Saved> best_ = nullptr;  // null: the module's weights
  std::string text_ = "the last weights";
};

}  // namespace levin
