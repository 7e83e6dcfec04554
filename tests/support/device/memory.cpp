#include "support/device/memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "support/device/streams.h"
#include "support/device/test_device.h"

namespace levin::test {

namespace {

constexpr size_t kReserved = size_t{8} << 30;  // of addresses; pages exist when they are written
constexpr size_t kSmallest = 64;

char* reserve(int access) {
  void* address = ::mmap(nullptr, kReserved, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK(address != MAP_FAILED, "testdev: no addresses for its memory");
  return static_cast<char*>(address);
}

size_t rounded(size_t bytes) {
  size_t size = kSmallest;
  while (size < bytes) size *= 2;
  return size;
}

class DeviceAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override { return DeviceMemory::instance().allocate(bytes, current_device()); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    const auto& memory = DeviceMemory::instance();
    std::memcpy(memory.for_kernels(to), memory.for_kernels(from), bytes);
  }
};

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    TORCH_CHECK(has_streams(), "testdev: no pinned memory");
    void* address = std::malloc(bytes == 0 ? 1 : bytes);
    const std::lock_guard lock(mutex);
    blocks[static_cast<char*>(address)] = bytes;
    return {address, address, &release, c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  static void release(void* address);

  std::mutex mutex;
  std::map<char*, size_t> blocks;
};

PinnedAllocator& pinned() {
  static auto* made = new PinnedAllocator;  // never destroyed: tensors may live as long
  return *made;
}

void PinnedAllocator::release(void* address) {
  const std::lock_guard lock(pinned().mutex);
  pinned().blocks.erase(static_cast<char*>(address));
  std::free(address);
}

}  // namespace

DeviceMemory& DeviceMemory::instance() {
  static auto* made = new DeviceMemory;
  return *made;
}

DeviceMemory::DeviceMemory() : tensors_(reserve(PROT_NONE)), kernels_(reserve(PROT_READ | PROT_WRITE)) {}

c10::DataPtr DeviceMemory::allocate(size_t bytes, c10::Device device) {
  if (bytes == 0) return {nullptr, device};
  const size_t size = rounded(bytes);
  const std::lock_guard lock(mutex_);
  auto& free = free_[{pool_, size}];
  size_t offset = used_;
  if (free.empty()) {
    TORCH_CHECK(used_ + size <= kReserved, "testdev out of memory: ", bytes, " bytes");
    used_ += size;
  } else {
    offset = free.back();
    free.pop_back();
  }
  blocks_[offset] = {size, pool_};
  std::memset(kernels_ + offset, 0xff, bytes);
  char* address = tensors_ + offset;
  return {address, address, &release, device};
}

void DeviceMemory::release(void* context) {
  DeviceMemory& memory = instance();
  const std::lock_guard lock(memory.mutex_);
  const auto block = memory.blocks_.find(static_cast<size_t>(static_cast<char*>(context) - memory.tensors_));
  memory.free_[{block->second.pool, block->second.bytes}].push_back(block->first);
  memory.blocks_.erase(block);
}

void DeviceMemory::use_pool(const void* pool) {
  const std::lock_guard lock(mutex_);
  pool_ = pool;
}

void DeviceMemory::drop_pool(const void* pool) {
  const std::lock_guard lock(mutex_);
  for (auto& [offset, block] : blocks_) {
    if (block.pool == pool) block.pool = nullptr;
  }
  for (auto& [key, offsets] : free_) {
    if (key.first != pool) continue;
    auto& common = free_[{nullptr, key.second}];
    common.insert(common.end(), offsets.begin(), offsets.end());
    offsets.clear();
  }
}

char* DeviceMemory::for_kernels(const void* address) const {
  if (address == nullptr) return nullptr;
  const auto offset = static_cast<const char*>(address) - tensors_;
  TORCH_CHECK(offset >= 0 && static_cast<size_t>(offset) < kReserved,
              "testdev: the address is not in the device's memory");
  return kernels_ + offset;
}

int64_t DeviceMemory::bytes() const {
  const std::lock_guard lock(mutex_);
  size_t sum = 0;
  for (const auto& [offset, block] : blocks_) sum += block.bytes;
  return static_cast<int64_t>(sum);
}

DeviceMemory::Snapshot DeviceMemory::snapshot() const {
  const std::lock_guard lock(mutex_);
  Snapshot saved;
  for (const auto& [offset, block] : blocks_) {
    saved.blocks[offset].assign(kernels_ + offset, kernels_ + offset + block.bytes);
  }
  return saved;
}

void DeviceMemory::restore(const Snapshot& saved) {
  const std::lock_guard lock(mutex_);
  for (const auto& [offset, bytes] : saved.blocks) {
    if (blocks_.contains(offset)) std::memcpy(kernels_ + offset, bytes.data(), bytes.size());
  }
}

c10::Allocator& device_allocator() {
  static auto* made = new DeviceAllocator;
  return *made;
}

c10::Allocator& pinned_allocator() {
  return pinned();
}

bool is_pinned(const void* address) {
  const std::lock_guard lock(pinned().mutex);
  auto& blocks = pinned().blocks;
  const char* wanted = static_cast<const char*>(address);
  auto after = blocks.upper_bound(const_cast<char*>(wanted));
  if (after == blocks.begin()) return false;
  const auto& [begin, bytes] = *std::prev(after);
  return wanted < begin + bytes;
}

int64_t device_bytes() {
  return DeviceMemory::instance().bytes();
}

}  // namespace levin::test
