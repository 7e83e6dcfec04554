// A part of a forward pass that keeps only its inputs and is recomputed in backward. Used by recompute.h and
// RecomputedCall.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "levin/recompute/recompute_options.h"

namespace levin {

/// How a segment is recomputed.
struct SegmentOptions {
  std::string name = "the segment";  // in errors
  Keep keep = Keep::nothing;         // what is kept besides the inputs
  bool offload = false;              // inputs on a GPU are kept in host memory
};

/// Returns whether a segment that begins here has an effect: only if operators build a graph for backward.
[[nodiscard]] bool recomputation_applies();

/// Returns whether the calling thread is recomputing a segment: for code that should count, log or print once.
[[nodiscard]] bool is_recomputing();

namespace detail {

/// A scope around the forward pass of a segment, on one thread.
class SegmentScope {
 public:
  using Tensors = std::vector<at::Tensor>;
  /// Runs the forward pass again; its results are discarded. Must not hold the inputs.
  using Again = std::function<void(const Tensors& inputs)>;

  /// Must only be called where recomputation_applies(). `buffers`: tensors that the forward pass may change (running
  /// statistics), which are restored after the recomputation.
  SegmentScope(SegmentOptions options, Tensors inputs, Tensors buffers, Again again);
  ~SegmentScope();
  SegmentScope(const SegmentScope&) = delete;
  SegmentScope& operator=(const SegmentScope&) = delete;

  /// Called after the forward pass. Throws Error if it has changed an input in place.
  void finish();

 private:
  struct Open;
  std::shared_ptr<Open> open_;
};

}  // namespace detail

}  // namespace levin
