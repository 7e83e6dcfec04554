// How many bytes of weights, gradients and optimizer state a rank holds, by the storages behind the tensors: storage
// shared by several views counts once, freed storage does not count.
#pragma once

#include <cstdint>
#include <string>

namespace levin {

class Trainer;

struct HeldMemory {
  int64_t parameters = 0;  // weights: the module's, and the strategy's copies or shards
  int64_t gradients = 0;
  int64_t optimizer_state = 0;  // of all optimizers, without their counters

  /// "parameters 12.0 MiB, gradients 6.0 MiB, optimizer state 12.0 MiB"
  [[nodiscard]] std::string str() const;
};

/// Of the running fit, now, on this rank.
[[nodiscard]] HeldMemory held_memory(Trainer& trainer);

}  // namespace levin
