// A part of a forward pass that keeps its inputs alone and is computed again in backward. recompute.h and
// RecomputedCall are made of it.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "levin/recompute/recompute_options.h"

namespace levin {

/// How a segment is computed again.
struct SegmentOptions {
  std::string name = "the segment";  // in errors
  Keep keep = Keep::nothing;         // what is kept besides the inputs
  bool offload = false;              // inputs on a GPU are kept in the host's memory; on the CPU they are there
};

/// Whether a segment that begins here does anything: only where operators make a graph for backward.
[[nodiscard]] bool recomputation_applies();

/// Whether the calling thread is computing a segment again: for code that should count, log or print once.
[[nodiscard]] bool is_recomputing();

namespace detail {

/// Around the forward pass of a segment, on one thread.
class SegmentScope {
 public:
  using Tensors = std::vector<at::Tensor>;
  /// The forward pass once more; its results are not wanted. Holds none of the inputs.
  using Again = std::function<void(const Tensors& inputs)>;

  /// Only where recomputation_applies(). `buffers`: tensors that the forward pass may change (running statistics),
  /// which are put back after it was computed again.
  SegmentScope(SegmentOptions options, Tensors inputs, Tensors buffers, Again again);
  ~SegmentScope();
  SegmentScope(const SegmentScope&) = delete;
  SegmentScope& operator=(const SegmentScope&) = delete;

  /// After the forward pass: throws Error if it has changed an input in place.
  void finish();

 private:
  struct Open;
  std::unique_ptr<Open> open_;
};

}  // namespace detail

}  // namespace levin
