// Types of numbers that an old LibTorch lacks. Internal.
#pragma once

#include <ATen/core/Tensor.h>

namespace levin {

namespace detail {
template <class Type>
constexpr Type float8_e8m0fnu() {
  if constexpr (requires { Type::Float8_e8m0fnu; }) {
    return Type::Float8_e8m0fnu;
  } else {
    return Type::Undefined;
  }
}
}  // namespace detail

/// at::kFloat8_e8m0fnu; Undefined before LibTorch 2.7.
inline constexpr at::ScalarType kFloat8_e8m0fnu = detail::float8_e8m0fnu<at::ScalarType>();

}  // namespace levin
