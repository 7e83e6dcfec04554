// The action of a part that is computed on a slot, or on several, of its own. Internal to ModelParallel.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "levin/core/module_call.h"
#include "levin/strategies/parallel_apply.h"
#include "levin/strategies/placement.h"
#include "levin/strategies/replicas.h"

namespace levin {

class Pipeline;

/// What was computed where, in the order it began. For tests and for who wants to see how much is moved.
struct PlacementTrace {
  struct Event {
    std::string what;  // "forward" of a part, or "F" and "B" of a pipeline's stage
    std::string part;  // or the stage's parts
    std::string slot;  // "cpu:1"
    int64_t micro_batch = 0;
  };
  std::vector<Event> events = {};  // while recording
  int64_t transfers = 0;           // tensors that went from one slot to another in forward passes
  int64_t transferred_bytes = 0;
};

/// Collects a trace from several threads.
class PlacementRecorder {
 public:
  void set_recording(bool on);
  void add(PlacementTrace::Event event);
  void add_transfer(const at::Tensor& tensor, const DeviceSlot& from, const DeviceSlot& to);
  [[nodiscard]] PlacementTrace trace() const;
  void clear();

 private:
  mutable std::mutex mutex_;
  bool recording_ = false;
  PlacementTrace trace_;
};

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
