// How many bytes the tensors of a device hold, and the most that they held since a mark. Internal, for planning.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

namespace levin {

/// Counts while it lives. One at a time per device; every thread's allocations count.
class MemoryMeter {
 public:
  /// CPU: an allocator in front of LibTorch's, which counts what is allocated from now on, so that held() begins at 0;
  /// allocations that the meter has seen may outlive it. GPU: the caching allocator's own statistics, whose peak it
  /// resets. Throws Error where a CPU allocator of higher priority is in the way.
  static std::unique_ptr<MemoryMeter> make(at::Device device);

  MemoryMeter() = default;
  virtual ~MemoryMeter() = default;
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  /// Bytes now, of what is counted.
  [[nodiscard]] virtual int64_t held() const = 0;
  /// The most since mark().
  [[nodiscard]] virtual int64_t peak() const = 0;
  virtual void mark() = 0;
  /// Until the device has done what it was given, so that times can be taken.
  virtual void wait() const = 0;
};

/// Bytes that the process or the device could still take: on a CPU the smaller of the machine's available memory and
/// what the control group's limit leaves; on a GPU what is free, and what LibTorch has reserved and not in use.
[[nodiscard]] int64_t free_memory(at::Device device);

}  // namespace levin
