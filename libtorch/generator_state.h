// The state of a random number generator, read and set under the generator's lock.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <mutex>

namespace levin {

/// As a tensor of bytes.
[[nodiscard]] inline at::Tensor generator_state(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

inline void set_generator_state(at::Generator generator, const at::Tensor& state) {
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

/// Sets the state; returns the one before. No other thread draws in between.
[[nodiscard]] inline at::Tensor exchange_generator_state(at::Generator generator, const at::Tensor& state) {
  const std::lock_guard lock(generator.mutex());
  at::Tensor before = generator.get_state();
  generator.set_state(state);
  return before;
}

}  // namespace levin
