// Measures the bytes of a device's tensors, now and at their peak since a mark. Internal, for planning.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

namespace levin {

/// Counts during its lifetime. One at a time per device; allocations of all threads count.
class MemoryMeter {
 public:
  /// CPU: an allocator in front of LibTorch's, which counts what is allocated from now on, so that held() begins at 0;
  /// allocations that the meter has seen may outlive it. GPU: the caching allocator's own statistics, whose peak it
  /// resets. Throws Error where a CPU allocator of higher priority is in the way, and for a second meter of the CPU.
  static std::unique_ptr<MemoryMeter> make(at::Device device);

  MemoryMeter() = default;
  virtual ~MemoryMeter() = default;
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  /// Returns the counted bytes now.
  [[nodiscard]] virtual int64_t held() const = 0;
  /// Returns their peak since mark().
  [[nodiscard]] virtual int64_t peak() const = 0;
  virtual void mark() = 0;
  /// Waits until the device is idle, for measuring times.
  virtual void wait() const = 0;
};

/// Returns the bytes that the process or the device can still allocate: on a CPU the smaller of the machine's available
/// memory and what the control group's limit leaves; on a GPU what is free, and what LibTorch has reserved and not in
/// use.
[[nodiscard]] int64_t free_memory(at::Device device);

}  // namespace levin
