// A trace of computations and transfers. Internal to ModelParallel.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "levin/strategies/device_slot.h"

namespace levin {

/// The computations on each slot, in the order they began. For tests, and for measuring transfers.
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

}  // namespace levin
