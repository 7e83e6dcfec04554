#include "levin/strategies/device/placed_call.h"

#include <utility>

#include "levin/strategies/device/pipeline.h"
#include "levin/strategies/device/scatter_gather.h"

namespace levin {

namespace {

// The slot that holds the result of the previous block, in the chain that the calling thread runs.
DeviceSlot& chain_slot() {
  thread_local DeviceSlot slot;
  return slot;
}

int64_t rows_of(const TensorList& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.dim() > 0) return tensor.size(0);
  }
  return 1;
}

}  // namespace

PlacedCall::PlacedCall(PlacedPart part, DeviceSlot home, PlacementRecorder& recorder, Pipeline* pipeline, size_t index)
    : part_(std::move(part)), home_(home), recorder_(recorder), pipeline_(pipeline), index_(index) {
  if (part_.slots.size() < 2) return;
  copies_ = clone_for(*part_.module, part_.slots);
  replicas_ = std::make_shared<Replicas>(*part_.module, copies_, part_.slots);
  parallel_ = std::make_shared<ParallelApply>(part_.slots);
}

TensorList PlacedCall::around(const ModuleForward& forward, const TensorList& inputs, ChainPosition place) {
  ++calls_;
  const DeviceSlot* scope = current_slot();
  const DeviceSlot home = scope != nullptr ? *scope : home_;
  if (place.begins) chain_slot() = home;
  const DeviceSlot from = chain_slot();
  const auto compute = [&](const TensorList& given) {
    return parallel_ ? on_group(forward, given, from) : on_slot(forward, given, from);
  };
  const bool piped = pipeline_ != nullptr && pipeline_->is_running_here();
  TensorList outputs = piped ? pipeline_->call_part(index_, compute, inputs) : compute(inputs);
  chain_slot() = part_.slots[0];
  if (!place.ends) return outputs;
  chain_slot() = home;
  return moved(outputs, part_.slots[0], home);
}

TensorList PlacedCall::on_slot(const ModuleForward& forward, const TensorList& inputs, const DeviceSlot& from) {
  const DeviceSlot& slot = part_.slots[0];
  const TensorList here = moved(inputs, from, slot);
  const SlotScope scope(slot);
  recorder_.add({"forward", part_.name, slot.text(), 0});
  return forward(here, nullptr);
}

TensorList PlacedCall::on_group(const ModuleForward& forward, const TensorList& inputs, const DeviceSlot& from) {
  const auto& slots = part_.slots;
  const auto sizes = share_sizes(rows_of(inputs), slots.size());
  std::vector<TensorList> shares(sizes.size());
  for (const at::Tensor& input : inputs) {
    const auto parts = input.defined() ? scatter(input, sizes, slots) : std::vector<at::Tensor>(sizes.size());
    for (size_t k = 0; k < sizes.size(); ++k) {
      recorder_.add_transfer(parts[k], from, slots[k]);
      shares[k].push_back(parts[k]);
    }
  }
  replicas_->refresh(sizes.size());
  std::vector<TensorList> results(sizes.size());
  (*parallel_)(sizes.size(), [&](size_t k) {
    recorder_.add({"forward", part_.name, slots[k].text(), 0});
    results[k] = forward(shares[k], k == 0 ? nullptr : copies_[k - 1].get());
  });
  TensorList outputs;
  for (size_t t = 0; t < results[0].size(); ++t) {
    std::vector<at::Tensor> rows;
    for (size_t k = 0; k < results.size(); ++k) {
      rows.push_back(results[k].at(t));
      recorder_.add_transfer(rows.back(), slots[k], slots[0]);
    }
    outputs.push_back(gather(rows, slots[0]));
  }
  return outputs;
}

TensorList PlacedCall::moved(const TensorList& tensors, const DeviceSlot& from, const DeviceSlot& to) const {
  TensorList there;
  for (const at::Tensor& tensor : tensors) {
    recorder_.add_transfer(tensor, from, to);
    there.push_back(move_to(tensor, to));
  }
  return there;
}

}  // namespace levin
