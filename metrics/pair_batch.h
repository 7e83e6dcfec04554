// Predictions and targets of equal shape, as metrics of numbers and images read them. Internal.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>
#include <string>

namespace levin::metrics {

/// A scope in which operators record no graph and are not cast to lower precision.
class PlainOps {
 private:
  at::AutoDispatchBelowADInplaceOrView no_graph_;
  c10::impl::ExcludeDispatchKeyGuard no_autocast_{c10::autocast_dispatch_keyset};
};

/// A batch whose tensors are both float or both double: integers and mixed types become double, half becomes float. On
/// the CPU they are contiguous.
struct PairBatch {
  at::Tensor preds;
  at::Tensor target;
  [[nodiscard]] bool on_cpu() const { return preds.is_cpu(); }
  [[nodiscard]] bool is_float() const { return preds.scalar_type() == at::kFloat; }
};

/// Throws Error naming `metric` and both devices if they differ.
void check_same_device(const std::string& metric, const at::Tensor& preds, const at::Tensor& target);

/// Throws Error naming `metric`, both shapes or devices if they differ.
[[nodiscard]] PairBatch pair_batch(const std::string& metric, const at::Tensor& preds, const at::Tensor& target);

/// The shape in a message: "[4, 3]".
[[nodiscard]] std::string shape_of(const at::Tensor& tensor);

/// Rows and columns of a batch for a metric of `num_outputs`: with one, all elements are rows of one column. Throws
/// Error if the batch is not (N, num_outputs). `one_dimension`: with one output, only (N) and (N, 1) are accepted.
struct OutputShape {
  int64_t rows = 0;
  int64_t columns = 1;
};
[[nodiscard]] OutputShape output_shape(const std::string& metric, const at::Tensor& preds, int64_t num_outputs,
                                       bool one_dimension);

/// Calls `action` with pointers to the values: of float or of double.
template <class Action>
void with_values(const PairBatch& batch, Action action) {
  if (batch.is_float()) {
    action(batch.preds.const_data_ptr<float>(), batch.target.const_data_ptr<float>());
  } else {
    action(batch.preds.const_data_ptr<double>(), batch.target.const_data_ptr<double>());
  }
}

}  // namespace levin::metrics
