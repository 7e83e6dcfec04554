#include "levin/precision/mixed_precision.h"

#include <ATen/autocast_mode.h>

namespace levin {

void MixedPrecision::enter_forward(at::DeviceType device) {
  outer_.push_back({at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device)});
  at::autocast::set_autocast_enabled(device, true);
  at::autocast::set_autocast_dtype(device, dtype_);
  at::autocast::increment_nesting();
}

void MixedPrecision::leave_forward(at::DeviceType device) {
  // The cache holds casts of weights that the coming optimizer step changes.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device, outer_.back().enabled);
  at::autocast::set_autocast_dtype(device, outer_.back().dtype);
  outer_.pop_back();
}

}  // namespace levin
