#include "levin/precision/mixed_precision.h"

#include "levin/precision/autocast.h"

namespace levin {

MixedPrecision::MixedPrecision(MixedPrecisionOptions options)
    : dtype_(checked(options, "MixedPrecisionOptions").dtype == MixedDtype::float16 ? at::kHalf : at::kBFloat16) {
  if (dtype_ == at::kHalf && options.scaler) scaler_.emplace(*options.scaler);
}

std::string MixedPrecision::name() const {
  return dtype_ == at::kHalf ? "16-mixed" : "bf16-mixed";
}

// Without the cache of casts: a step that updates weights and continues (manual optimization) must see them, and one
// that runs a layer under NoGradGuard first must still give it a gradient. For a layer that runs once per step this
// costs nothing.
std::shared_ptr<void> MixedPrecision::enter_forward(at::DeviceType device) {
  return std::make_shared<Autocast>(device, dtype_, AutocastOptions{.cache_enabled = false});
}

State MixedPrecision::state_dict() const {
  return scaler_ ? scaler_->state_dict() : State();
}

void MixedPrecision::load_state_dict(const State& saved) {
  if (scaler_ && !saved.empty()) scaler_->load_state_dict(saved);
}

}  // namespace levin
