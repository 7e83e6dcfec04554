#include "levin/cuda/memory_watch.h"

#include <map>
#include <mutex>

#include "levin/libtorch/cuda_capture.h"
#include "levin/libtorch/device_memory.h"

namespace levin {

namespace {

std::mutex mutex;
std::map<int64_t, GpuMemory> failures;  // by device

// Called by the thread whose allocation failed, after the allocator has released its lock.
void note_failure(int64_t device, size_t wanted, size_t total, size_t free) {
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
  const std::lock_guard lock(mutex);
  failures[device] = {.wanted = static_cast<int64_t>(wanted),
                      .allocated = all_pools(stats.allocated_bytes).current,
                      .reserved = all_pools(stats.reserved_bytes).current,
                      .peak = all_pools(stats.allocated_bytes).peak,
                      .free = static_cast<int64_t>(free),
                      .total = static_cast<int64_t>(total)};
}

}  // namespace

void watch_memory() {
  attachOutOfMemoryObserver(note_failure);
}

GpuMemory memory_at_failure(at::Device device) {
  const std::lock_guard lock(mutex);
  return failures[device.has_index() ? device.index() : 0];
}

}  // namespace levin
