// Replaces the batch_norm operator of CPUs and GPUs for all callers: LibTorch has no way to replace submodules that a
// module's code uses. Registers kernels for autograd's dispatch keys of CPUs and GPUs, which call LibTorch's own.
// Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>

namespace levin {

/// The arguments of a batch_norm in training mode.
struct BatchNormCall {
  const at::Tensor& input;  // (N, C, …)
  const std::optional<at::Tensor>& weight;
  const std::optional<at::Tensor>& bias;
  const std::optional<at::Tensor>& running_mean;
  const std::optional<at::Tensor>& running_var;
  double momentum;
  double eps;
};

/// Computes a call and updates its running statistics, on any thread; nullopt: LibTorch computes the call.
using BatchNormFunction = std::function<std::optional<at::Tensor>(const BatchNormCall&)>;

/// During its lifetime, `compute` is called for every batch_norm in training mode, on any thread, but not for the calls
/// of instance_norm, which pass the channels of all instances. Of several scopes the latest one that computes the call
/// does. A scope begins and ends between the calls of other threads, for which it waits.
class BatchNormScope {
 public:
  explicit BatchNormScope(BatchNormFunction compute);
  ~BatchNormScope();
  BatchNormScope(const BatchNormScope&) = delete;
  BatchNormScope& operator=(const BatchNormScope&) = delete;

 private:
  BatchNormFunction compute_;
};

}  // namespace levin
