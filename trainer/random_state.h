// Keeps the random numbers of a run apart from what happens in between.
#pragma once

#include <cstdint>

#include "levin/core/state.h"

namespace levin {

/// Remembers the default generators' states and puts them back when it goes.
class RandomState {
 public:
  RandomState();
  ~RandomState();
  RandomState(const RandomState&) = delete;
  RandomState& operator=(const RandomState&) = delete;

 private:
  State saved_;
};

/// The states of all generators that LibTorch's operators use: "cpu", and "cuda.<index>" for each device.
[[nodiscard]] State random_state();
/// Puts them back; those of `rank` where several ranks' were saved. Throws CheckpointError if one is missing;
/// generators of devices that are not here are left out.
void restore_random_state(const State& saved, int64_t rank = 0);

/// Seeds every generator of the process, the loaders' default included. Call it before the model is made.
void seed_everything(uint64_t seed);
/// Seeds the generators of all GPUs; none before the CUDA component is open.
void seed_gpus(uint64_t seed);

}  // namespace levin
