#include "levin/strategies/device/placement_recorder.h"

#include <utility>

namespace levin {

void PlacementRecorder::set_recording(bool on) {
  const std::lock_guard lock(mutex_);
  recording_ = on;
}

void PlacementRecorder::add(PlacementTrace::Event event) {
  const std::lock_guard lock(mutex_);
  if (recording_) trace_.events.push_back(std::move(event));
}

void PlacementRecorder::add_transfer(const at::Tensor& tensor, const DeviceSlot& from, const DeviceSlot& to) {
  if (!tensor.defined() || from == to) return;
  const std::lock_guard lock(mutex_);
  ++trace_.transfers;
  trace_.transferred_bytes += static_cast<int64_t>(tensor.nbytes());
}

PlacementTrace PlacementRecorder::trace() const {
  const std::lock_guard lock(mutex_);
  return trace_;
}

void PlacementRecorder::clear() {
  const std::lock_guard lock(mutex_);
  trace_ = {};
}

}  // namespace levin
