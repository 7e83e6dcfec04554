#include "levin/libtorch/device_memory.h"

#include <ATen/DeviceAccelerator.h>

#include "levin/libtorch/version.h"

namespace levin {

namespace {

#if LEVIN_TORCH_AT_LEAST(2, 9)
c10::DeviceAllocator& allocator_of(at::Device device) {
  return *c10::getDeviceAllocator(device.type());
}
#else
// Declares what c10::DeviceAllocator has in newer versions.
struct NoAllocator {
  DeviceStats getDeviceStats(c10::DeviceIndex index);
  void resetPeakStats(c10::DeviceIndex index);
};
[[noreturn]] NoAllocator& allocator_of(at::Device /*device*/) {
  report_old_torch("Measuring the memory of a device other than the CPU", 2, 9);
}
#endif

c10::DeviceIndex index_of(at::Device device) {
  return device.has_index() ? device.index() : static_cast<c10::DeviceIndex>(0);
}

template <class Allocator>
int64_t free_bytes(Allocator& allocator, c10::DeviceIndex index) {
  if constexpr (requires { allocator.getMemoryInfo(index); }) {
    return static_cast<int64_t>(allocator.getMemoryInfo(index).first);
  } else {
    report_old_torch("Reading a device's free memory", 2, 10);
  }
}

}  // namespace

bool has_device_stats() {
  return LEVIN_TORCH_AT_LEAST(2, 9);
}

DeviceStats device_stats(at::Device device) {
  return allocator_of(device).getDeviceStats(index_of(device));
}

void reset_peak_stats(at::Device device) {
  allocator_of(device).resetPeakStats(index_of(device));
}

int64_t free_device_memory(at::Device device) {
  return free_bytes(allocator_of(device), index_of(device));
}

void empty_device_cache([[maybe_unused]] at::Device device) {
#if LEVIN_TORCH_AT_LEAST(2, 9)
  allocator_of(device).emptyCache();
#endif
}

void synchronize(at::Device device) {
  DeviceBackend(device.type()).synchronizeDevice(index_of(device));
}

void synchronize_accelerator() {
  const DeviceBackend guard(at::getAccelerator(/*checked=*/true).value());
  guard.synchronizeDevice(guard.getDevice().index());
}

}  // namespace levin
