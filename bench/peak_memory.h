// The most bytes of tensors that were alive at once on a CPU, as LibTorch's allocator reports them: the same in every
// run, unlike the process's resident memory. Counts what this thread allocates while the scope lives, autograd's
// backward on the CPU included, and subtracts what is freed. A GPU's allocator keeps this record itself.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>

namespace bench {

class PeakMemory {
 public:
  [[nodiscard]] int64_t bytes() const { return records_->peak; }
  [[nodiscard]] double mib() const { return static_cast<double>(bytes()) / (1 << 20); }

 private:
  struct Records final : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override {
      alive += size;  // below 0 where memory is freed
      peak = std::max(peak, alive);
    }
    [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }

    int64_t alive = 0, peak = 0;
  };

  std::shared_ptr<Records> records_ = std::make_shared<Records>();
  c10::DebugInfoGuard guard_{c10::DebugInfoKind::PROFILER_STATE, records_};
};

}  // namespace bench
