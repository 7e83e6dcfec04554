#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "levin/core/state.h"
#include "levin/trainer/run/window_weights.h"

namespace levin {

/// An accumulation window: the batches that make one optimizer step. Constructed with its first batch.
struct Window {
  int64_t size = 1;
  int64_t seen = 0;             // batches so far; 0: none is open
  int64_t first_batch = 0;      // where it began, in its epoch
  int64_t total_batches = 0;    // the same over all epochs
  bool spoilt = false;          // one of its losses was not finite, and the update is skipped
  at::Tensor unread_loss = {};  // () the sum of the losses that are judged at its end; undefined: none
  at::Tensor heard = {};        // what all ranks said with its gradients, on the device; undefined: it has been heard
  WindowWeights weights = {};
  State loader_state = {};  // before its first batch was fetched

  [[nodiscard]] bool ended() const { return seen == 0; }
};

/// Which part of an accumulation window a batch is.
struct WindowPart {
  bool first = true;
  bool last = true;
  bool size_known = true;  // false: the window may be cut by the end of a loader of unknown length
};

}  // namespace levin
