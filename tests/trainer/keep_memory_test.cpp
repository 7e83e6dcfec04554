#include "levin/trainer/loops/keep_memory.h"

#include <gtest/gtest.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "callbacks/quiet_trainer.h"
#include "support/captured_console.h"
#include "support/tiny_module.h"

namespace levin::keep_memory_test {
namespace {

using namespace test;

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(FetchedMemory, IsWorthKeepingIfItsPagesCostATwentiethOfTheStepAndFit) {
  const int64_t pages = 64 * kMiB / page_bytes();
  const double seconds = static_cast<double>(pages) * 0.5e-6;
  const int64_t plenty = 1024 * kMiB;
  EXPECT_TRUE((FetchedMemory{pages, seconds * 19}.is_worth_keeping(plenty)));
  EXPECT_FALSE((FetchedMemory{pages, seconds * 21}.is_worth_keeping(plenty)));
  EXPECT_TRUE((FetchedMemory{pages / 256, seconds / 256}.is_worth_keeping(plenty)));   // 256 KiB
  EXPECT_FALSE((FetchedMemory{pages / 512, seconds / 512}.is_worth_keeping(plenty)));  // 128 KiB
  EXPECT_FALSE((FetchedMemory{pages, seconds}.is_worth_keeping(127 * kMiB)));
  EXPECT_TRUE((FetchedMemory{pages, seconds}.is_worth_keeping(129 * kMiB)));
}

// A training whose steps need one large block, and the page faults of each step.
struct Large : TinyModule {
  Large() {
    on_training_step = [this](int64_t) {
      const int64_t before = page_faults();
      const at::Tensor block = torch::empty({bytes}, torch::kByte);
      auto* memory = static_cast<volatile uint8_t*>(block.mutable_data_ptr());
      for (int64_t at = 0; at < block.numel(); at += page_bytes()) memory[at] = 1;
      faults.push_back(page_faults() - before);
    };
  }
  // The faults of a step whose block is fresh memory: the allocator may have touched the page at each end of it.
  [[nodiscard]] int64_t fresh_faults() const { return bytes / page_bytes() - 2; }

  int64_t bytes = 96 * kMiB;
  std::vector<int64_t> faults = {};
};

// Freed blocks may stay in the heap between used ones, also from one case to the next, and malloc reuses them without
// page faults. A block of this size fits into no such hole, even where two of them were joined.
int64_t larger_than_holes() {
#ifdef __GLIBC__
  return static_cast<int64_t>(::mallinfo2().fordblks) + 96 * kMiB;
#else
  return 0;
#endif
}

TEST(MemoryKeeping, KeepsWhatLargeStepsFreeAndReportsItOnce) {
  if (!can_set_freed_memory()) GTEST_SKIP() << "not glibc's malloc, or its variables are set";
  CapturedConsole console;
  Large module;
  TrainerOptions options = quiet(2, {});
  options.enable_model_summary = true;
  Trainer(options).fit(module, tiny_loader(96));
  ASSERT_EQ(module.faults.size(), 48U);
  for (size_t step = 0; step < 8; ++step) EXPECT_GE(module.faults[step], module.fresh_faults()) << step;
  // A small block next to a freed one takes a few bytes of it, and the next aligned block needs fresh pages:
  // this can happen in any step, regardless of what other threads allocate.
  const auto fetching = std::count_if(module.faults.begin() + 8, module.faults.end(),
                                      [&](int64_t faults) { return faults >= module.fresh_faults() / 10; });
  EXPECT_LE(fetching, 10) << "of 40 steps";
  const std::string output = console.text();
  const size_t first = output.find("memory that a batch frees is kept for the next one, up to ");
  ASSERT_NE(first, std::string::npos) << output;
  EXPECT_EQ(output.find("memory that a batch frees", first + 1), std::string::npos);
  EXPECT_NE(output.find("LEVIN_KEEP_FREED_MEMORY=0"), std::string::npos);
  module.faults.clear();
  module.bytes = larger_than_holes();
  for (int step = 0; step < 2; ++step) module.on_training_step(0);
  EXPECT_GE(module.faults[1], module.fresh_faults()) << "after the fit malloc does as before";
}

TEST(MemoryKeeping, LeavesMallocAloneIfTheUserAsksForIt) {
  if (!can_set_freed_memory()) GTEST_SKIP() << "not glibc's malloc, or its variables are set";
  ::setenv("LEVIN_KEEP_FREED_MEMORY", "0", 1);
  CapturedConsole console;
  Large module;
  module.bytes = larger_than_holes();
  Trainer(quiet(1, {})).fit(module, tiny_loader(48));
  ::unsetenv("LEVIN_KEEP_FREED_MEMORY");
  EXPECT_GE(module.faults.back(), module.fresh_faults());
  EXPECT_FALSE(console.has("memory that a batch frees"));
}

TEST(MemoryKeeping, ReportsNothingForSmallSteps) {
  CapturedConsole console;
  TinyModule module;
  TrainerOptions options = quiet(2, {});
  options.enable_model_summary = true;
  Trainer(options).fit(module, tiny_loader(48));
  EXPECT_FALSE(console.has("memory that a batch frees"));
}

}  // namespace
}  // namespace levin::keep_memory_test
