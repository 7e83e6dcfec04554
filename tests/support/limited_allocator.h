// A CPU with limited memory: wraps LibTorch's CPU allocator in one that counts, and that fails like LibTorch's own when
// a limit would be exceeded.
//
//   MemoryLimit limit;                       // counts from here on
//   … limit.peak() …                         // bytes, above what was held at the beginning
//   limit.set(1 << 20);                      // at most this many bytes more than at the beginning
#pragma once

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <limits>

namespace levin::test {

class LimitedAllocator final : public c10::Allocator {
 public:
  static LimitedAllocator& instance() {
    static auto* allocator = new LimitedAllocator();  // tensors may outlive every scope
    return *allocator;
  }

  c10::DataPtr allocate(size_t bytes) override {
    const size_t before = held_.fetch_add(bytes);
    if (bytes > 0 && before + bytes > limit) {
      held_ -= bytes;
      ++refused;
      TORCH_CHECK(false, "DefaultCPUAllocator: can't allocate memory: you tried to allocate ", bytes,
                  " bytes. Error code 12 (Cannot allocate memory)");
    }
    size_t most = peak;
    while (before + bytes > most && !peak.compare_exchange_weak(most, before + bytes)) {
    }
    auto* block = new Block{inner_->allocate(bytes), bytes};
    return {block->memory.get(), block, &give_back, c10::Device(c10::DeviceType::CPU)};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  [[nodiscard]] size_t held() const { return held_; }

  std::atomic<size_t> limit = std::numeric_limits<size_t>::max();
  std::atomic<size_t> peak = 0;
  std::atomic<int> refused = 0;

 private:
  struct Block {
    c10::DataPtr memory;
    size_t bytes;
  };
  LimitedAllocator() : inner_(c10::GetCPUAllocator()) {}
  static void give_back(void* context) {
    auto* block = static_cast<Block*>(context);
    instance().held_ -= block->bytes;
    delete block;
  }

  c10::Allocator* inner_;
  std::atomic<size_t> held_ = 0;
};

/// Counts all CPU tensors of the process during its lifetime. Only one may exist at a time.
class MemoryLimit {
 public:
  MemoryLimit() : outer_(c10::GetCPUAllocator()) {
    LimitedAllocator& allocator = LimitedAllocator::instance();
    c10::SetCPUAllocator(&allocator);
    start_ = allocator.held();
    allocator.peak = start_;
    allocator.refused = 0;
  }
  ~MemoryLimit() {
    unset();
    c10::SetCPUAllocator(outer_);
  }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

  void set(size_t bytes) { LimitedAllocator::instance().limit = start_ + bytes; }
  void unset() { LimitedAllocator::instance().limit = std::numeric_limits<size_t>::max(); }
  [[nodiscard]] size_t peak() const { return LimitedAllocator::instance().peak - start_; }
  /// The number of allocations that failed.
  [[nodiscard]] int refused() const { return LimitedAllocator::instance().refused; }

 private:
  c10::Allocator* outer_;
  size_t start_ = 0;
};

}  // namespace levin::test
