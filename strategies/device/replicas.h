// Copies of a module on other slots: before each forward pass they get its weights, buffers and training modes, and in
// backward their gradients are added to its own, in the order of the copies.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <memory>
#include <string>
#include <vector>

#include "levin/strategies/device_placement.h"

namespace torch::nn {
class Module;
}

namespace levin {

/// A module and its copies, one for each slot. Used by one thread.
class Replicas {
 public:
  /// `copies[k]`, for `slots[k + 1]`, must have the parameters and buffers of `module`, by name and shape; their values
  /// do not matter. `module` itself is the replica on slots[0], so that its changes to buffers persist. Throws
  /// ConfigError naming the first tensor that differs.
  Replicas(torch::nn::Module& module, std::vector<std::shared_ptr<torch::nn::Module>> copies,
           std::vector<DeviceSlot> slots);
  Replicas(const Replicas&) = delete;
  Replicas& operator=(const Replicas&) = delete;

  /// Updates the first `count` - 1 copies. Their parameters are computed from the module's, so each call begins a new
  /// graph; with gradients disabled they are plain values.
  void refresh(size_t count);

  /// Same as refresh(), but the parameters of the copies are leaves of separate graphs: for with_parallel_backward(),
  /// which adds their gradients.
  void refresh_leaves(size_t count);

  /// Returns the module's tensors, and in the same order the tensors of each copy.
  [[nodiscard]] const std::vector<at::Tensor>& parameters() const { return parameters_; }
  [[nodiscard]] const std::vector<at::Tensor>& parameters_of_copy(size_t k) const { return copy_parameters_.at(k); }

 private:
  [[nodiscard]] size_t copies_for(size_t count) const;
  void refresh_modes(size_t count);
  void refresh_buffers(size_t count);

  torch::nn::Module& module_;
  std::vector<std::shared_ptr<torch::nn::Module>> copies_;
  std::vector<at::Device> devices_;                       // of the copies
  std::vector<at::Tensor> parameters_, buffers_;          // the module's
  std::vector<std::vector<at::Tensor>> copy_parameters_;  // of each copy, in the same order
  std::vector<std::vector<at::Tensor>> copy_buffers_;
};

/// Copies of `module` made by its clone(), for slots[1], slots[2], …; each on its slot's device. Throws ConfigError if
/// the class has no clone().
[[nodiscard]] std::vector<std::shared_ptr<torch::nn::Module>> clone_for(const torch::nn::Module& module,
                                                                        const std::vector<DeviceSlot>& slots);

}  // namespace levin
