// Saves and restores the states of random number generators.
#pragma once

#include <cstdint>

#include "levin/core/state.h"

namespace levin {

/// A scope that saves the default generators' states and restores them in its destructor.
class RandomState {
 public:
  RandomState();
  ~RandomState();
  RandomState(const RandomState&) = delete;
  RandomState& operator=(const RandomState&) = delete;

 private:
  State saved_;
};

/// Returns the states of all generators that LibTorch's operators use: "cpu", and "cuda.<index>" for each device (or
/// a different accelerator's name).
[[nodiscard]] State random_state();
/// Restores the states that random_state() returned; of a checkpoint with the states of several ranks, those of `rank`.
/// States of absent devices are skipped, and generators without a saved state are left alone. Throws CheckpointError if
/// the CPU's state is missing.
void restore_random_state(const State& saved, int64_t rank = 0);

/// Seeds every generator of the process, including the loaders' default seed. Call it before the model is made, on
/// every rank.
void seed_everything(uint64_t seed);
/// Seeds the generators of all devices of the accelerators in use; does nothing before one is used.
void seed_accelerators(uint64_t seed);

}  // namespace levin
