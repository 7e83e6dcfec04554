// The accumulation window: the batches that make one optimizer step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace levin {

// See Note [Where a loss weight goes] in step/loss_weights.h.

/// Whether the losses of a window have weights; open: not known yet.
enum class WeightKind { open, plain, weighted };

/// The weights of an accumulation window's batches so far.
struct WindowWeights {
  WeightKind kind = WeightKind::open;
  at::Tensor total = {};  // () float64, their sum; undefined: there are none
};

/// The loss weights of a fit.
struct LossWeights {
  WeightKind agreed = WeightKind::open;  // with several ranks: the kind on all of them, once they have agreed
  WeightKind loaded = WeightKind::open;  // the kind in the checkpoint that the fit continues from
  double unit = 0;                       // 0: not chosen yet
  at::Tensor weight = {};                // () the running batch's weight; undefined: none
};

/// An accumulation window: the batches that make one optimizer step. Constructed with its first batch.
struct Window {
  bool is_open = false;
  int64_t size = 1;
  int64_t seen = 0;                 // batches so far
  int64_t first_batch = 0;          // index of its first batch in the epoch
  bool has_nonfinite_loss = false;  // one of its losses or gradients was not finite, and the update is skipped
  at::Tensor unread_loss = {};      // () the sum of the losses that are judged at its end; undefined: none
  at::Tensor received = {};         // the flags of all ranks, on the device; undefined: they were read
  WindowWeights weights = {};
};

/// Which part of an accumulation window a batch is.
struct WindowPart {
  bool first = true;
  bool last = true;
  bool size_known = true;  // false: the window may be cut by the end of a loader of unknown length
};

}  // namespace levin
