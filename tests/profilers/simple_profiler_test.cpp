#include "levin/profilers/simple_profiler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

namespace levin::simple_profiler_test {
namespace {

void work(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

TEST(SimpleProfiler, CountsNestedActionsInFullInEach) {
  SimpleProfiler profiler;
  for (int i = 0; i < 3; ++i) {
    const ProfilerScope outer(&profiler, "outer");
    work(2);
    for (int k = 0; k < 2; ++k) {
      const ProfilerScope inner(&profiler, "inner");
      work(2);
    }
  }
  const auto actions = profiler.actions();
  ASSERT_EQ(actions.size(), 2U);
  EXPECT_EQ(actions[0].name, "outer");
  EXPECT_EQ(actions[0].calls, 3);
  EXPECT_EQ(actions[1].calls, 6);
  EXPECT_GE(actions[0].total, 0.018);
  EXPECT_GE(actions[1].total, 0.012);
  EXPECT_GE(actions[0].total, actions[1].total + 0.006);
  EXPECT_DOUBLE_EQ(actions[1].mean, actions[1].total / 6);
}

TEST(SimpleProfiler, AnActionMayRunInsideItself) {
  SimpleProfiler profiler;
  profiler.start("a");
  profiler.start("a");
  profiler.stop("a");
  profiler.stop("a");
  EXPECT_EQ(profiler.actions()[0].calls, 2);
}

TEST(SimpleProfiler, PutsLiteralsOfOneTextTogetherAndIgnoresAStrayStop) {
  const std::string here = "load", there = "load";
  SimpleProfiler profiler;
  profiler.stop("load");
  profiler.start(here.c_str());
  profiler.stop(there.c_str());
  profiler.start(there.c_str());
  profiler.stop(there.c_str());
  ASSERT_EQ(profiler.actions().size(), 1U);
  EXPECT_EQ(profiler.actions()[0].calls, 2);
}

TEST(SimpleProfiler, StoppingTheOuterActionDropsWhatAnErrorLeftOpen) {
  SimpleProfiler profiler;
  profiler.start("outer");
  profiler.start("broken");
  profiler.stop("outer");
  profiler.stop("broken");
  ASSERT_EQ(profiler.actions().size(), 1U);
  EXPECT_EQ(profiler.actions()[0].name, "outer");
}

TEST(SimpleProfiler, SummaryIsATableByTotalTime) {
  SimpleProfiler profiler;
  EXPECT_EQ(profiler.summary(), "Profile: nothing was measured.");
  profiler.start("whole");
  profiler.start("half");
  work(20);
  profiler.stop("half");
  work(20);
  profiler.stop("whole");
  const std::string text = profiler.summary();
  EXPECT_NE(text.find("calls"), std::string::npos);
  EXPECT_LT(text.find("\nwhole"), text.find("\nhalf"));
  EXPECT_NE(text.find("100.0 %"), std::string::npos) << text;
}

TEST(SimpleProfiler, APairCostsAboutTwoLooksAtTheClock) {
  SimpleProfiler profiler;
  const char* names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
  for (const char* name : names) {
    profiler.start(name);
    profiler.stop(name);
  }
  constexpr int kPairs = 100'000;
  double best = 1e9;  // of several tries: other programs run here too
  for (int attempt = 0; attempt < 10; ++attempt) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kPairs; ++i) {
      profiler.start("g");
      profiler.stop("g");
    }
    best = std::min(
        best, std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / kPairs);
  }
  RecordProperty("nanoseconds", std::to_string(best));
  std::printf("%.1f ns a pair\n", best);
  EXPECT_LT(best, 5000);  // 60 to 80 measured; unoptimised and with sanitizers more
}

}  // namespace
}  // namespace levin::simple_profiler_test
