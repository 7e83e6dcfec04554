// Selective recomputation (keep: matmul): the results of matrix products are kept in the forward pass and reused when
// the segment is recomputed. Internal.
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <string>
#include <vector>

#include "levin/libtorch/below_autograd.h"

namespace c10 {
class OperatorHandle;
}

namespace levin {

// Note [Below autograd]
// The products are seen by an observer between autograd and the devices, so that autograd records them,
// and saves what it needs, whether they are computed or reused. An operator that calls another (attention, convolution)
// is kept once, as a whole.
//
// Note [Changes in place]
// So are the operators that change a tensor in place: what is kept is copied before they do (torch::nn::Linear adds its
// bias to a three-dimensional product in this way), and when the segment is computed again they get a copy to change.
// Changes after the segment are detected by the version counter, which matmul's results would not share otherwise.

/// The results of one segment's products, in their order.
class KeptResults {
 public:
  explicit KeptResults(std::string segment) : segment_(std::move(segment)) {}

  enum class Mode { keep, give };
  /// During its lifetime, products on the calling thread are kept in `results`, or taken from it; null: neither, even
  /// within an outer scope.
  class Scope;

  /// The operators whose results are kept: "aten::mm", …
  [[nodiscard]] static const std::vector<std::string>& operators();

  void keep(const c10::OperatorHandle& op, const std::vector<c10::IValue>& results);
  /// Throws Error if the forward pass ran another operator here, or the result was changed in place after it.
  [[nodiscard]] std::vector<c10::IValue> give(const c10::OperatorHandle& op);

  /// Whether the tensor shares memory with a kept one.
  [[nodiscard]] bool holds(const at::Tensor& tensor) const;
  /// `op` is about to change the tensor in place. Throws Error if it has not done so in the forward pass.
  void before_change(const c10::OperatorHandle& op, const at::Tensor& tensor, Mode mode);

 private:
  struct Result {
    std::string op;
    std::vector<c10::IValue> values = {};
    std::vector<int64_t> versions = {};  // of the tensors among them
    bool is_changed = false;             // in place, within the segment: these are copies
    at::Generator generator = {};        // of an operator that draws: where it was afterwards
    at::Tensor generator_state = {};
  };

  std::string segment_;
  std::vector<Result> results_;
  size_t next_ = 0;
};

class KeptResults::Scope {
 public:
  Scope(KeptResults* results, Mode mode);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  KeptResults* outer_;
  Mode outer_mode_;
  std::unique_ptr<OperatorObserver> observer_;  // of the outermost scope of a thread
};

}  // namespace levin
