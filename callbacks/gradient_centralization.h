// Gradient centralization (Yong et al. 2020, https://arxiv.org/abs/2004.01461): subtracts from each output's gradient
// its mean, before clipping and the update.
//
//   .callbacks = {levin::GradientCentralization()}
#pragma once

#include "levin/core/options/fields.h"
#include "levin/trainer/callback.h"

namespace levin {

/// Options of GradientCentralization.
struct GradientCentralizationOptions {
  bool only_convolutions = false;

  template <class = void>
  static auto fields() {
    return levin::fields(field("only_convolutions", &GradientCentralizationOptions::only_convolutions,
                               "leave matrices (linear layers, embeddings) unchanged"));
  }
};

/// A callback that centralizes gradients, for any optimizer and on every rank. Gradients of vectors stay unchanged.
/// Nothing waits for a device.
class GradientCentralization final : public Callback {
 public:
  using Options = GradientCentralizationOptions;
  explicit GradientCentralization(Defaults = {}) : GradientCentralization(GradientCentralizationOptions()) {}
  explicit GradientCentralization(GradientCentralizationOptions options);

  /// Throws ConfigError if each rank holds only a part of the gradients (fsdp).
  void on_fit_start(Trainer& trainer, LightningModule&) override;
  void on_before_optimizer_step(Trainer&, LightningModule&, Optimizer& optimizer) override;

 private:
  GradientCentralizationOptions options_;
};

}  // namespace levin
