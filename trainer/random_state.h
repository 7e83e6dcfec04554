// Saves and restores the states of random number generators.
#pragma once

#include <cstdint>

#include "levin/core/state.h"

namespace levin {

/// Saves the default generators' states and restores them in its destructor.
class RandomState {
 public:
  RandomState();
  ~RandomState();
  RandomState(const RandomState&) = delete;
  RandomState& operator=(const RandomState&) = delete;

 private:
  State saved_;
};

/// The states of all generators that LibTorch's operators use: "cpu", and "cuda.<index>" for each device (or another
/// accelerator's name).
[[nodiscard]] State random_state();
/// Restores them; those of `rank` if several ranks' were saved. Throws CheckpointError if one is missing;
/// generators of absent devices are skipped.
void restore_random_state(const State& saved, int64_t rank = 0);

/// Seeds every generator of the process, the loaders' default included. Call it before the model is made.
void seed_everything(uint64_t seed);
/// Seeds the generators of all devices of the accelerators in use; does nothing before one is used.
void seed_accelerators(uint64_t seed);

}  // namespace levin
