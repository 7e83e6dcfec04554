// Keeps the random numbers of a run apart from what happens in between.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace levin {

/// Remembers the default generators' states and puts them back when it goes.
class RandomState {
 public:
  RandomState();
  ~RandomState();
  RandomState(const RandomState&) = delete;
  RandomState& operator=(const RandomState&) = delete;

 private:
  at::Tensor cpu_;
};

/// Seeds every generator of the process, the loaders' default included. Call it before the model is made.
void seed_everything(uint64_t seed);

}  // namespace levin
