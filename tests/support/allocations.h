// What LibTorch's allocators report for the test's thread: allocated bytes and their peak, since construction.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>

namespace levin::test {

class Allocations {
 public:
  Allocations() : counter_(std::make_shared<Counter>()), guard_(c10::DebugInfoKind::PROFILER_STATE, counter_) {}

  [[nodiscard]] int64_t held() const { return counter_->held; }
  [[nodiscard]] int64_t peak() const { return counter_->peak; }
  void mark() { counter_->peak = counter_->held; }

 private:
  struct Counter final : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override {
      held += size;
      peak = std::max(peak, held);
    }
    [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }
    int64_t held = 0;
    int64_t peak = 0;
  };

  std::shared_ptr<Counter> counter_;
  c10::DebugInfoGuard guard_;
};

}  // namespace levin::test
