// A module, or a part of one, computed by replicas on several slots, each on its share of the batch.
//
//   levin::DataParallel encoder(encoder_, slots);        // encoder_: a registered submodule with clone()
//   at::Tensor y = encoder.forward(x);                   // x is scattered, y gathered on slots[0]
//
//   levin::DataParallelModel model(net_, slots);         // balanced: the outputs stay where they were computed,
//   levin::DataParallelCriterion criterion(model.parallel(), &cross_entropy);
//   at::Tensor loss = criterion.forward(model.forward(x), target);   // … and so do the losses, up to their mean
//
// With all outputs on slots[0], that device runs out of memory first, while the others have some left: hence the
// balanced form, from Hang Zhang's PyTorch-Encoding (https://github.com/zhanghang1989/PyTorch-Encoding,
// encoding/parallel.py).
//
// The wrapped module still belongs to its owner: register it as usual; its names, parameters and checkpoints do not
// change. Gradients are accumulated in its parameters, and changes that the replica on slots[0] makes to its buffers
// persist. Replicas are made with torch::nn::Module::clone(), which requires torch::nn::Cloneable. Not thread-safe.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <concepts>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "levin/strategies/device/parallel_apply.h"
#include "levin/strategies/device/replicas.h"
#include "levin/strategies/device/scatter_gather.h"

namespace levin {

namespace detail {

/// The number of samples of a call: the rows of its first tensor with a dimension; 1 if there is none.
template <class... Args>
int64_t samples_of(const Args&... args) {
  int64_t samples = -1;
  auto look = [&](const auto& arg) {
    if constexpr (std::is_same_v<std::decay_t<decltype(arg)>, at::Tensor>) {
      if (samples < 0 && arg.defined() && arg.dim() > 0) samples = arg.size(0);
    }
  };
  (look(args), ...);
  return samples < 0 ? 1 : samples;
}

/// Tensors are scattered; any other value is replicated.
template <class T>
auto shares_of(const T& value, const std::vector<int64_t>& sizes, const std::vector<DeviceSlot>& slots) {
  if constexpr (std::is_same_v<T, at::Tensor>) return scatter(value, sizes, slots);
  if constexpr (!std::is_same_v<T, at::Tensor>) return std::vector<T>(sizes.size(), value);
}

}  // namespace detail

/// A module computed by replicas whose outputs stay on their slots (the balanced form).
template <class M>
class DataParallelModel {
 public:
  /// `slots`: at least one; the module must be on the first. Throws ConfigError if the module cannot be cloned.
  DataParallelModel(std::shared_ptr<M> module, std::vector<DeviceSlot> slots)
      : module_(std::move(module)), parallel_(std::make_shared<ParallelApply>(std::move(slots))) {
    const auto copies = clone_for(*module_, parallel_->slots());
    replicas_ = std::make_shared<Replicas>(*module_, copies, parallel_->slots());
    modules_.push_back(module_);
    for (const auto& copy : copies) modules_.push_back(std::dynamic_pointer_cast<M>(copy));
  }
  /// Same as above, for a module holder such as torch::nn::Linear.
  template <class Holder>
  requires requires(Holder holder) {
    { holder.ptr() } -> std::convertible_to<std::shared_ptr<M>>;
  }
  DataParallelModel(const Holder& holder, std::vector<DeviceSlot> slots)
      : DataParallelModel(std::shared_ptr<M>(holder.ptr()), std::move(slots)) {}

  /// Returns module->forward(…) of each share, in slot order; tensors are scattered along their first dimension. A
  /// batch with fewer samples than slots uses one slot per sample. Throws Error naming the replica and its slot.
  template <class... Args>
  auto forward(const Args&... args) {
    using Output = std::decay_t<decltype(module_->forward(args...))>;
    const auto sizes = share_sizes(detail::samples_of(args...), modules_.size());
    replicas_->refresh(sizes.size());
    const auto shares = std::make_tuple(detail::shares_of(args, sizes, parallel_->slots())...);
    std::vector<Output> outputs(sizes.size());
    (*parallel_)(sizes.size(), [&](size_t k) {
      outputs[k] = std::apply([&](const auto&... lists) { return modules_[k]->forward(lists[k]...); }, shares);
    });
    return outputs;
  }

  /// Returns the threads, for a DataParallelCriterion that shares them.
  [[nodiscard]] const std::shared_ptr<ParallelApply>& parallel() const { return parallel_; }
  [[nodiscard]] const std::vector<DeviceSlot>& slots() const { return parallel_->slots(); }

 private:
  std::shared_ptr<M> module_;
  std::shared_ptr<ParallelApply> parallel_;
  std::vector<std::shared_ptr<M>> modules_;  // by slot
  std::shared_ptr<Replicas> replicas_;
};

template <class Holder>
DataParallelModel(const Holder&, std::vector<DeviceSlot>) -> DataParallelModel<typename Holder::ContainedType>;

/// A module computed by replicas whose outputs, which must be tensors, are gathered on the first slot, as by PyTorch's
/// DataParallel. Throws what DataParallelModel throws.
template <class M>
class DataParallel {
 public:
  template <class Module>
  DataParallel(Module module, std::vector<DeviceSlot> slots) : model_(std::move(module), std::move(slots)) {}

  template <class... Args>
  at::Tensor forward(const Args&... args) {
    return gather(model_.forward(args...), model_.slots()[0]);
  }
  [[nodiscard]] const std::vector<DeviceSlot>& slots() const { return model_.slots(); }

 private:
  DataParallelModel<M> model_;
};

template <class M>
DataParallel(std::shared_ptr<M>, std::vector<DeviceSlot>) -> DataParallel<M>;
template <class Holder>
requires requires {
  typename Holder::ContainedType;
}
DataParallel(Holder, std::vector<DeviceSlot>)->DataParallel<typename Holder::ContainedType>;

/// A loss computed on the slots that hold the outputs of a DataParallelModel.
class DataParallelCriterion {
 public:
  /// `criterion`: the loss of (output, target) for one share, a scalar: the mean over its samples.
  using Criterion = std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>;
  DataParallelCriterion(std::shared_ptr<ParallelApply> parallel, Criterion criterion);

  /// `outputs[k]`: (samples of share k, …) on slot k; `target`: (samples, …), scattered in the same way. Returns the
  /// mean over all samples on the first slot; the other slots send only their scalars. Throws Error if the numbers of
  /// rows differ, or naming the slot whose criterion threw.
  [[nodiscard]] at::Tensor forward(const std::vector<at::Tensor>& outputs, const at::Tensor& target);

 private:
  std::shared_ptr<ParallelApply> parallel_;
  Criterion criterion_;
};

}  // namespace levin
