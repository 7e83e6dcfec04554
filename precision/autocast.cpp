#include "levin/precision/autocast.h"

#include <ATen/autocast_mode.h>

#include <string>

#include "levin/core/options/error.h"

namespace levin {

Autocast::Autocast(at::DeviceType device, std::optional<at::ScalarType> dtype, AutocastOptions options)
    : device_(device),
      outer_enabled_(at::autocast::is_autocast_enabled(device)),
      outer_dtype_(at::autocast::get_autocast_dtype(device)),
      outer_cache_enabled_(at::autocast::is_autocast_cache_enabled()) {
  if (dtype && *dtype != at::kHalf && *dtype != at::kBFloat16) {
    throw Error(std::string("Autocast: ") + c10::toString(*dtype) +
                " is not a type to cast to. Use at::kBFloat16 or at::kHalf.");
  }
  at::autocast::set_autocast_enabled(device_, options.enabled);
  if (dtype) at::autocast::set_autocast_dtype(device_, *dtype);
  if (options.cache_enabled) at::autocast::set_autocast_cache_enabled(*options.cache_enabled);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  // The cache contains casts of weights, which the next optimizer step changes.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, outer_enabled_);
  at::autocast::set_autocast_dtype(device_, outer_dtype_);
  at::autocast::set_autocast_cache_enabled(outer_cache_enabled_);
}

}  // namespace levin
