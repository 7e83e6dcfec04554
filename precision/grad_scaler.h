// Loss scaling for float16, whose smallest number is 6e-8: the loss is multiplied by a large factor, so that small
// gradients survive backward, and the gradients are divided by it before they are used. If one overflows, the step is
// skipped and the factor is reduced; after many good steps it grows. Constants and algorithm are
// torch.amp.GradScaler's. The Trainer does all this automatically (precision: 16-mixed); in your own loop:
//
//   scaler.scale(loss).backward();
//   const at::Tensor overflow = scaler.unscale_(parameters);   // once a step, before clipping
//   if (!overflow.item<bool>()) optimizer.step();
//   scaler.update(overflow);                                   // once a step, after all optimizers
//
// Scale and counter are tensors on the loss's device; only scale_value() and state_dict() wait for it. Not
// thread-safe; every rank has its own, and they agree if the gradients do.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <vector>

#include "levin/core/options/fields.h"
#include "levin/core/state.h"

namespace levin {

/// Options of GradScaler; names and defaults are torch.amp.GradScaler's.
struct GradScalerOptions {
  double init_scale = 65536.0;
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("init_scale", &GradScalerOptions::init_scale, "the loss is multiplied by this at first").above(0.0),
        field("growth_factor", &GradScalerOptions::growth_factor, "the scale grows by this after growth_interval steps")
            .above(1.0),
        field("backoff_factor", &GradScalerOptions::backoff_factor, "the scale falls by this when a gradient overflows")
            .above(0.0)
            .below(1.0),
        field("growth_interval", &GradScalerOptions::growth_interval, "steps in a row without overflow before it grows")
            .min(1));
  }
};

/// The loss scale of a run, and the count of good steps that lets it grow. The constructor throws ConfigError for
/// invalid options.
class GradScaler {
 public:
  using Options = GradScalerOptions;

  explicit GradScaler(Defaults = {}) : GradScaler(GradScalerOptions()) {}
  explicit GradScaler(GradScalerOptions options);

  /// Returns the loss times the scale, in float32 at least.
  [[nodiscard]] at::Tensor scale(const at::Tensor& loss);

  /// Divides the gradients of `params` by the scale. Returns one number on the scale's device: 0, or 1 if any gradient
  /// was inf or nan. Add up the results of several optimizers for update(). Throws Error if a gradient is float16 or
  /// sparse, or if nothing was ever scaled.
  [[nodiscard]] at::Tensor unscale_(const std::vector<at::Tensor>& params);

  /// Updates the scale: down if `found_inf` is not 0, up after growth_interval consecutive calls with 0.
  void update(const at::Tensor& found_inf);

  /// Returns the scale: one float32 on the device of the last loss.
  [[nodiscard]] const at::Tensor& scale_tensor();
  /// Returns the scale as a number. Waits for the device.
  [[nodiscard]] double scale_value() const;
  [[nodiscard]] const GradScalerOptions& options() const { return options_; }

  /// Returns {scale, growth_tracker}. Options come from the configuration.
  [[nodiscard]] State state_dict() const;
  void load_state_dict(const State& saved);
  [[deprecated("use state_dict()")]] [[nodiscard]] State state() const { return state_dict(); }
  [[deprecated("use load_state_dict()")]] void load_state(const State& saved) { load_state_dict(saved); }

 private:
  void make_tensors(const at::Device& device);

  GradScalerOptions options_;
  double start_scale_;  // before the tensors are created, on the first loss's device
  int64_t start_tracker_ = 0;
  bool used_ = false;
  at::Tensor scale_;    // () float32
  at::Tensor tracker_;  // () int32, good steps in a row
};

}  // namespace levin
