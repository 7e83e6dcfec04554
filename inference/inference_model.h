// A trained model for predictions, for any number of threads at once. load_for_inference makes it from a checkpoint.
//
//   const levin::InferenceModel model = levin::load_for_inference("levin_logs/version_0");
//   at::Tensor classes = model.predict(images);       // bitwise identical to Trainer::predict for this batch
#pragma once

#include <memory>
#include <string>

#include "levin/data/batch.h"
#include "levin/trainer/lightning_module.h"

namespace levin {

class Precision;

/// A module in evaluation mode, with the precision it computes in. Any number of threads may call it at once, as
/// predict() describes.
class InferenceModel {
 public:
  /// Takes a module that a program has made and loaded: turns gradients off and layers to evaluation mode. Copies of an
  /// InferenceModel share the module, which nothing else should change from here on. `precision` null: 32-true;
  /// its dtype is not applied to the weights, which are the caller's.
  explicit InferenceModel(std::shared_ptr<LightningModule> module, std::shared_ptr<Precision> precision = nullptr);

  /// Returns what the module's predict_step computes (by default forward of the first tensor) for one batch, on the
  /// model's device, in the order of Trainer::predict: the module's transfer hooks, the precision's dtype, then the
  /// step under its autocast, in inference mode and with batch_idx 0. The result cannot be used in training.
  ///
  /// May be called on many threads at once, without a lock: each result is what one thread alone would get. For that
  /// predict_step and the transfer hooks must not write to members, draw random numbers from the process's generator,
  /// or set options of the process; layers of LibTorch do none of that in evaluation mode. log() does nothing, and
  /// trainer() throws Error. A precision of your own must allow enter_forward on several threads. While a model in
  /// 64-true, bf16-true or 16-true predicts, the process's default dtype is its own, and predictions in another
  /// precision wait.
  ///
  /// Throws Error with the module, the shapes of the batch and LibTorch's message.
  [[nodiscard]] at::Tensor predict(const Batch& batch) const;
  [[nodiscard]] at::Tensor predict(const at::Tensor& input) const;

  [[nodiscard]] const LightningModule& module() const;
  /// "bf16-mixed", …
  [[nodiscard]] std::string precision() const;
  [[nodiscard]] at::Device device() const;

 private:
  struct Parts;
  std::shared_ptr<const Parts> parts_;
};

}  // namespace levin
