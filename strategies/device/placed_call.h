// The action of a part that is computed on a slot, or on several, of its own. Internal to ModelParallel.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "levin/core/module_call.h"
#include "levin/strategies/device/parallel_apply.h"
#include "levin/strategies/device/placement.h"
#include "levin/strategies/device/placement_recorder.h"
#include "levin/strategies/device/replicas.h"

namespace levin {

class Pipeline;

/// Moves what a part is given to its slot, and what it returns back to the caller's, or leaves it for the next block of
/// a chain.
class PlacedCall final : public CallAction {
 public:
  /// `pipeline`: null, or what computes the part when one of its micro-batches calls it, as its part number `index`.
  PlacedCall(PlacedPart part, PlacementRecorder& recorder, Pipeline* pipeline, size_t index);

  TensorList around(const ModuleForward& forward, const TensorList& inputs, ChainPlace place) override;

  [[nodiscard]] const PlacedPart& part() const { return part_; }
  [[nodiscard]] int64_t calls() const { return calls_; }

 private:
  TensorList on_slot(const ModuleForward& forward, const TensorList& inputs, const DeviceSlot& from);
  TensorList on_group(const ModuleForward& forward, const TensorList& inputs, const DeviceSlot& from);
  TensorList moved(const TensorList& tensors, const DeviceSlot& from, const DeviceSlot& to) const;

  PlacedPart part_;
  PlacementRecorder& recorder_;
  Pipeline* pipeline_;
  size_t index_;
  std::atomic<int64_t> calls_ = 0;
  // Of a part on several slots:
  std::vector<std::shared_ptr<torch::nn::Module>> copies_;
  std::unique_ptr<ParallelApply> parallel_;
  std::unique_ptr<Replicas> replicas_;
};

}  // namespace levin
