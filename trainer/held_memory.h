// How many bytes a rank really holds of what training keeps, from the memory behind the tensors: what several views
// share counts once, memory that was given back does not count.
#pragma once

#include <cstdint>
#include <string>

namespace levin {

class Trainer;

struct HeldMemory {
  int64_t parameters = 0;  // weights: the module's, and what the strategy holds beside them
  int64_t gradients = 0;
  int64_t optimizer_state = 0;  // of all optimizers, without their counters

  /// "parameters 12.0 MiB, gradients 6.0 MiB, optimizer state 12.0 MiB"
  [[nodiscard]] std::string str() const;
};

/// Of the running fit, as it is now. Every rank for itself.
[[nodiscard]] HeldMemory held_memory(Trainer& trainer);

}  // namespace levin
