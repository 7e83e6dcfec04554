// Runs an operator of the test device as the CPU's kernel on the same memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/Storage.h>

#include <functional>
#include <unordered_map>
#include <vector>

namespace levin::test {

/// Returns true if the tensor is on the test device; an undefined tensor is not.
[[nodiscard]] bool is_ours(const at::Tensor& tensor);

/// Tensors of the CPU on a device's memory, for one operator.
class OnCpu {
 public:
  /// Returns a device tensor as a CPU tensor; other tensors are returned unchanged.
  [[nodiscard]] at::Tensor alias(const at::Tensor& tensor);
  /// A result of the kernel as a tensor of the device: an argument, a view of one, or new memory.
  [[nodiscard]] at::Tensor on_device(const at::Tensor& result);
  /// Arguments that the kernel has resized get their new shapes and memory.
  void update_arguments();

  /// The device of the tensors so far; the calling thread's if there was none.
  [[nodiscard]] c10::Device device() const;
  [[nodiscard]] bool has_tensors() const { return !seen_.empty(); }

 private:
  struct Seen {
    at::Tensor own;
    at::Tensor alias;
  };
  std::vector<Seen> seen_;
  std::unordered_map<c10::StorageImpl*, c10::Storage> storages_;
};

/// A tensor of the device over the same memory, which it does not keep; others are returned unchanged.
[[nodiscard]] at::Tensor unowned(const at::Tensor& tensor);

/// Replaces the tensors among the last `count` values of the stack, in lists too.
void replace_tensors(torch::jit::Stack& stack, size_t count, const std::function<at::Tensor(const at::Tensor&)>& by);

/// The operator, its arguments on the stack; leaves the results there.
void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace levin::test
