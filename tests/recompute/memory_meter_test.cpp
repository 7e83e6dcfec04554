// Bytes of tensors, now and at their peak.
#include "levin/recompute/memory_meter.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/core/options/error.h"
#include "support/error_text.h"

namespace levin::memory_meter_test {
namespace {

using namespace test;

constexpr int64_t kFloats = 1 << 16;
constexpr int64_t kBytes = kFloats * 4;

TEST(MemoryMeter, CountsWhatIsHeldAndThePeakSinceAMark) {
  const auto meter = MemoryMeter::make(at::kCPU);
  const at::Tensor kept = torch::empty({kFloats});
  (void)torch::empty({2 * kFloats});
  EXPECT_EQ(meter->held(), kBytes);
  EXPECT_EQ(meter->peak(), 3 * kBytes);
  meter->mark();
  EXPECT_EQ(meter->peak(), kBytes);
}

TEST(MemoryMeter, LetsWhatItHasSeenOutliveIt) {
  at::Tensor kept;
  {
    const auto meter = MemoryMeter::make(at::kCPU);
    kept = torch::ones({kFloats});
  }
  EXPECT_EQ(kept.sum().item<double>(), kFloats);
  kept.reset();
  const auto again = MemoryMeter::make(at::kCPU);
  EXPECT_EQ(again->held(), 0);
}

TEST(MemoryMeter, IsTheOnlyOneOfTheCpu) {
  auto meter = MemoryMeter::make(at::kCPU);
  EXPECT_TRUE(holds(error_of<Error>([] { (void)MemoryMeter::make(at::kCPU); }),
                    {"another MemoryMeter measures the CPU's", "let that one end first"}));
  const at::Tensor kept = torch::empty({kFloats});
  EXPECT_EQ(meter->held(), kBytes) << "the first one continues";
  meter.reset();
  EXPECT_NO_THROW((void)MemoryMeter::make(at::kCPU));
}

}  // namespace
}  // namespace levin::memory_meter_test
