#include "levin/cuda/memory_watch.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <map>
#include <mutex>

namespace levin {

namespace {

std::mutex mutex;
std::map<int64_t, GpuMemory> failures;  // by device

// Called by the thread whose allocation failed, after the allocator has released its lock.
void note_failure(int64_t device, size_t wanted, size_t total, size_t free) {
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
  const std::lock_guard lock(mutex);
  failures[device] = {.wanted = static_cast<int64_t>(wanted),
                      .allocated = stats.allocated_bytes[kAll].current,
                      .reserved = stats.reserved_bytes[kAll].current,
                      .peak = stats.allocated_bytes[kAll].peak,
                      .free = static_cast<int64_t>(free),
                      .total = static_cast<int64_t>(total)};
}

}  // namespace

void watch_memory() {
  c10::cuda::CUDACachingAllocator::attachOutOfMemoryObserver(note_failure);
}

GpuMemory memory_at_failure(at::Device device) {
  const std::lock_guard lock(mutex);
  return failures[device.has_index() ? device.index() : 0];
}

}  // namespace levin
