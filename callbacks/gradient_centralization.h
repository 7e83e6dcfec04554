// Gradient centralisation (Yong et al. 2020, https://arxiv.org/abs/2004.01461): subtracts from the gradient of every
// output's weights their mean, before clipping and the update.
//
//   .callbacks = {levin::GradientCentralization()}
#pragma once

#include "levin/core/fields.h"
#include "levin/trainer/callback.h"

namespace levin {

struct GradientCentralizationOptions {
  bool only_convolutions = false;

  template <class = void>
  static auto fields() {
    return levin::fields(field("only_convolutions", &GradientCentralizationOptions::only_convolutions,
                               "leave matrices (linear layers, embeddings) as they are"));
  }
};

/// Works with any optimizer. Gradients of vectors are left as they are. Nothing waits for a device.
class GradientCentralization final : public Callback {
 public:
  using Options = GradientCentralizationOptions;
  explicit GradientCentralization(Defaults = {}) : GradientCentralization(GradientCentralizationOptions()) {}
  explicit GradientCentralization(GradientCentralizationOptions options);

  /// Throws ConfigError if ranks have parts of the gradients (fsdp).
  void on_fit_start(Trainer& trainer, LightningModule&) override;
  void on_before_optimizer_step(Trainer&, LightningModule&, Optimizer& optimizer) override;

 private:
  GradientCentralizationOptions options_;
};

}  // namespace levin
