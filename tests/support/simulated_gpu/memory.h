// The memory of the simulated GPUs, and page-locked memory of the host.
#pragma once

#include <cstddef>
#include <map>

namespace simulated {

/// Addresses that the host cannot read: reading one raises SIGSEGV, as with a GPU. Their contents are stored elsewhere.
/// All GPUs share the memory. Guarded by gate() (stream.h).
class DeviceMemory {
 public:
  static DeviceMemory& instance();

  /// Allocates memory at a multiple of 512, like cudaMalloc. Returns nullptr if not enough is free.
  [[nodiscard]] void* take(size_t bytes);
  /// Frees an allocation. Returns false if none begins at the address.
  bool give(void* address);
  [[nodiscard]] bool holds(const void* address) const;
  /// Returns the host address of a device address's contents; other addresses are returned unchanged.
  [[nodiscard]] void* on_host(const void* address) const;

  [[nodiscard]] size_t total() const { return total_; }
  [[nodiscard]] size_t in_use() const { return in_use_; }
  [[nodiscard]] size_t peak() const { return peak_; }

 private:
  DeviceMemory();

  size_t total_ = 0, in_use_ = 0, peak_ = 0;
  int file_ = -1;
  char* device_ = nullptr;
  char* numbers_ = nullptr;
  std::map<size_t, size_t> free_, taken_;  // offset: size
};

/// Guarded by gate().
class PinnedMemory {
 public:
  static PinnedMemory& instance();

  [[nodiscard]] void* take(size_t bytes);
  bool give(void* address);
  void add(void* address, size_t bytes) { ranges_[static_cast<char*>(address)] = bytes; }
  bool remove(void* address) { return ranges_.erase(static_cast<char*>(address)) == 1; }
  [[nodiscard]] bool holds(const void* address) const;

 private:
  std::map<char*, size_t> ranges_;
};

}  // namespace simulated
