// The memory of the test device. Each block has two addresses: the one that tensors have, which cannot be read or
// written, and the kernels' own.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace levin::test {

class DeviceMemory {
 public:
  static DeviceMemory& instance();

  /// Holds 0xff bytes: NaN in every floating type.
  [[nodiscard]] c10::DataPtr allocate(size_t bytes, c10::Device device);
  /// Where kernels find what tensors have at `address`.
  [[nodiscard]] char* for_kernels(const void* address) const;
  [[nodiscard]] int64_t bytes() const;

  /// Memory that is allocated from now on belongs to `pool`; null: to none. What it frees is used again for it alone.
  void use_pool(const void* pool);
  void drop_pool(const void* pool);

  /// The contents of all blocks now.
  struct Snapshot {
    std::map<size_t, std::vector<char>> blocks;
  };
  [[nodiscard]] Snapshot snapshot() const;
  /// Restores the contents of the blocks that still exist.
  void restore(const Snapshot& snapshot);

 private:
  DeviceMemory();
  static void release(void* context);

  mutable std::mutex mutex_;
  char* tensors_;  // not readable
  char* kernels_;
  size_t used_ = 0;
  struct Block {
    size_t bytes;  // rounded up
    const void* pool;
  };
  const void* pool_ = nullptr;
  std::map<size_t, Block> blocks_;                                      // by offset
  std::map<std::pair<const void*, size_t>, std::vector<size_t>> free_;  // pool and bytes: offsets
};

/// The allocator of LibTorch for the device type: on the calling thread's device.
[[nodiscard]] c10::Allocator& device_allocator();

/// Page-locked memory of the host: ordinary memory that is known by address.
[[nodiscard]] c10::Allocator& pinned_allocator();
[[nodiscard]] bool is_pinned(const void* address);

}  // namespace levin::test
