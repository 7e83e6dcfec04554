// What MixUp and CutMix share: how much of a second sample each one takes, and targets that are shares of classes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "levin/data/batch.h"
#include "levin/trainer/callback.h"
#include "levin/trainer/changes_batches.h"

namespace levin {

/// A callback that mixes each sample of a training batch with another of the same batch. Labels become probabilities of
/// the classes, (batch, classes), which cross_entropy takes. One share per batch, from Beta(alpha, alpha).
class MixedBatches : public Callback, public ChangesBatches {
 public:
  [[nodiscard]] Batch change_batch(Batch batch) override;

  /// The batch whose samples keep the share `kept` (0 to 1), and take the rest from sample `other[i]` each. `other`:
  /// (batch) int64, on the inputs' device.
  [[nodiscard]] Batch mixed(Batch batch, double kept, const at::Tensor& other) const;

 protected:
  struct Settings {
    double alpha = 1;
    double p = 1;
    int64_t num_classes = 0;
    size_t input = 0;
    size_t target = 1;
  };
  MixedBatches(std::string name, Settings settings) : name_(std::move(name)), settings_(settings) {}

  /// The mixed inputs, new; `kept` becomes the share that was really kept.
  [[nodiscard]] virtual at::Tensor mix_inputs(const at::Tensor& inputs, const at::Tensor& others,
                                              double& kept) const = 0;

  std::string name_;

 private:
  /// (batch, classes) in `type`, from labels (batch) or from such probabilities. Throws Error for other targets.
  [[nodiscard]] at::Tensor probabilities(const at::Tensor& target, at::ScalarType type) const;

  Settings settings_;
};

}  // namespace levin
