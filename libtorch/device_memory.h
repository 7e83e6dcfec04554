// LibTorch's interface to devices of any type, the hook for the CPU's memory, and the memory of other devices, by their
// caching allocators. LibTorch has had one interface for all devices' memory since 2.9, with a device's free memory
// since 2.10. Internal.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdint>

namespace levin {

/// The devices and streams of a type of device.
using DeviceBackend = c10::impl::VirtualGuardImpl;
using c10::impl::hasDeviceGuardImpl;

/// The allocator of CPU tensors, which a program may replace.
using c10::GetCPUAllocator, c10::GetDefaultCPUAllocator, c10::SetCPUAllocator;

using DeviceStats = c10::CachingDeviceAllocator::DeviceStats;
using DeviceStat = decltype(DeviceStats::allocated_bytes)::value_type;

/// Returns the entry for all pools of memory together.
[[nodiscard]] inline const DeviceStat& all_pools(const decltype(DeviceStats::allocated_bytes)& stats) {
  return stats[0];
}

/// Returns whether device_stats() and the other functions of this header know a device's memory.
[[nodiscard]] bool has_device_stats();

/// Throws Error if LibTorch is older than 2.9.
[[nodiscard]] DeviceStats device_stats(at::Device device);
void reset_peak_stats(at::Device device);

/// Returns the device's bytes that no program uses. Throws Error if LibTorch does not know it.
[[nodiscard]] int64_t free_device_memory(at::Device device);

/// Gives the memory that no tensor uses back to the device. Does nothing if LibTorch is older than 2.9, whose allocator
/// also does it before it reports that memory is missing.
void empty_device_cache(at::Device device);

/// Waits until the device is idle.
void synchronize(at::Device device);
/// Waits until the current device of LibTorch's accelerator is idle.
void synchronize_accelerator();

}  // namespace levin
