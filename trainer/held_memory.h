// The memory of a rank's weights, gradients and optimizer state.
#pragma once

#include <cstdint>
#include <string>

namespace levin {

class Trainer;

/// The bytes that a rank holds, counted by the tensors' storages: storage shared by several views counts once, freed
/// storage does not count.
struct HeldMemory {
  int64_t parameters = 0;  // weights: the module's, and the strategy's copies or shards
  int64_t gradients = 0;
  int64_t optimizer_state = 0;  // of all optimizers, without their counters

  /// Returns "parameters 12.0 MiB, gradients 6.0 MiB, optimizer state 12.0 MiB".
  [[nodiscard]] std::string str() const;
};

/// Returns what the running fit holds now, on this rank. Throws Error if the trainer has no module.
[[nodiscard]] HeldMemory held_memory(Trainer& trainer);

}  // namespace levin
