// A module whose losses overflow in float16 where a test wants it.
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "callbacks/quiet_trainer.h"
#include "levin/precision/mixed_precision.h"
#include "support/tiny_module.h"

namespace levin::test {

inline MixedPrecision float16(GradScalerOptions scaler = {.init_scale = 1024}) {
  return MixedPrecision({.dtype = MixedDtype::float16, .scaler = scaler});
}

inline TrainerOptions with(MixedPrecision precision, int64_t max_epochs = 1, Callbacks callbacks = {}) {
  TrainerOptions options = quiet(max_epochs, std::move(callbacks));
  options.precision = std::move(precision);
  return options;
}

/// In some batches (counted over all epochs) the loss is so large that its scaled gradient is inf in float16.
struct Overflowing : TinyModule {
  explicit Overflowing(std::set<int64_t> at = {}) : overflow_at(std::move(at)) {}
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
    const at::Tensor loss = TinyModule::training_step(batch, batch_idx);
    return overflow_at.contains(batches++) ? loss * 1e6 : loss;
  }
  void on_before_optimizer_step(Optimizer& optimizer) override {
    ++steps;
    const at::Tensor grad = optimizer.parameters()[0].grad();
    if (grad.defined()) grads.push_back(grad.clone());  // none where the batch was left out
  }
  std::set<int64_t> overflow_at;
  int64_t batches = 0;
  int64_t steps = 0;
  std::vector<at::Tensor> grads;
};

inline double scale_of(Trainer& trainer) {
  Component<Precision> precision = trainer.options().precision;
  return precision.object("test")->scaler()->scale_value();
}

}  // namespace levin::test
