// The call action of a part that is placed on one or several slots. Internal to ModelParallel.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "levin/core/module_call.h"
#include "levin/strategies/device/parallel_apply.h"
#include "levin/strategies/device/placement.h"
#include "levin/strategies/device/replicas.h"

namespace levin {

class Pipeline;

/// An action that moves a part's inputs to its slot, and its outputs back to the caller's, or leaves them for the next
/// block of a chain.
class PlacedCall final : public CallAction {
 public:
  /// `home`: the slot of the step itself, which computes in no SlotScope. `pipeline`: null, or the pipeline that
  /// computes the part, as its part number `index`, for its micro-batches.
  PlacedCall(PlacedPart part, DeviceSlot home, PlacementRecorder& recorder, Pipeline* pipeline, size_t index);

  TensorList around(const ModuleForward& forward, const TensorList& inputs, ChainPosition place) override;

  [[nodiscard]] const PlacedPart& part() const { return part_; }
  [[nodiscard]] int64_t calls() const { return calls_; }

 private:
  TensorList on_slot(const ModuleForward& forward, const TensorList& inputs, const DeviceSlot& from);
  TensorList on_group(const ModuleForward& forward, const TensorList& inputs, const DeviceSlot& from);
  TensorList moved(const TensorList& tensors, const DeviceSlot& from, const DeviceSlot& to) const;

  PlacedPart part_;
  DeviceSlot home_;
  PlacementRecorder& recorder_;
  Pipeline* pipeline_;
  size_t index_;
  std::atomic<int64_t> calls_ = 0;
  // Only if the part is on several slots:
  std::vector<std::shared_ptr<torch::nn::Module>> copies_;
  std::shared_ptr<ParallelApply> parallel_;
  std::shared_ptr<Replicas> replicas_;
};

}  // namespace levin
