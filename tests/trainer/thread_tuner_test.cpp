#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "levin/trainer/loops/tune_threads.h"

namespace levin::thread_tuner_test {
namespace {

using Cost = std::function<double(int threads)>;  // seconds of a window

/// Windows of this cost until a measurement ends; the numbers that were tried.
std::set<int> measure(ThreadTuner& tuner, const Cost& cost) {
  std::set<int> tried;
  for (int k = 0; k < 100000; ++k) {
    tried.insert(tuner.threads());
    EXPECT_GE(tuner.windows(), 1);
    if (tuner.add(cost(tuner.threads()))) return tried;
  }
  ADD_FAILURE() << "no measurement ended";
  return tried;
}

TEST(ThreadTuner, KeepsTheFastest) {
  for (const int best : {1, 2, 4, 8}) {
    ThreadTuner tuner(8);
    EXPECT_EQ(tuner.threads(), 8) << "what a run without measuring would use";
    measure(tuner, [best](int threads) { return threads == best ? 0.01 : 0.0115; });
    EXPECT_EQ(tuner.threads(), best);
  }
}

TEST(ThreadTuner, TakesFewerThreadsWhereTimesAreEqual) {
  ThreadTuner two(2);
  measure(two, [](int threads) { return threads == 2 ? 0.167e-3 : 0.156e-3; });
  EXPECT_EQ(two.threads(), 1);
  ThreadTuner six(6);
  EXPECT_EQ(measure(six, [](int threads) { return threads == 6 ? 0.0095 : 0.01; }), (std::set<int>{1, 2, 4, 6}));
  EXPECT_EQ(six.threads(), 1) << "more threads gain no more than noise";
  ThreadTuner eight(8);
  measure(eight, [](int threads) { return threads == 1 ? 0.0115 : 0.01; });
  EXPECT_EQ(eight.threads(), 2) << "the smallest of the numbers that are as fast as the fastest";
}

TEST(ThreadTuner, DoesNotTryOutWhatWouldTakeLong) {
  ThreadTuner tuner(64);
  const auto tried = measure(tuner, [](int threads) { return 64.0 / threads; });
  EXPECT_EQ(tried, (std::set<int>{32, 64}));
  EXPECT_EQ(tuner.threads(), 64);
}

TEST(ThreadTuner, DoesNotRuleANumberOutForOneSlowStep) {
  for (const int slow_step : {0, 1}) {
    ThreadTuner tuner(2);
    int steps_with_one = 0;
    const auto cost = [&](int threads) {
      if (threads == 2) return 0.025;
      return steps_with_one++ == slow_step ? 0.5 : 0.005;
    };
    EXPECT_EQ(measure(tuner, cost), (std::set<int>{1, 2}));
    EXPECT_EQ(tuner.threads(), 1);
  }
}

TEST(ThreadTuner, MeasuresLongerWhereStepsAreShort) {
  ThreadTuner tuner(2);
  EXPECT_FALSE(tuner.add(1e-4));  // threads start
  EXPECT_FALSE(tuner.add(1e-4));
  EXPECT_EQ(tuner.windows(), 200);
  ThreadTuner slow(2);
  EXPECT_FALSE(slow.add(2));
  EXPECT_FALSE(slow.add(2));
  EXPECT_EQ(slow.windows(), 4);
}

TEST(ThreadTuner, MeasuresAgainWhenStepsSlowDown) {
  ThreadTuner tuner(4);
  measure(tuner, [](int threads) { return 0.04 / threads; });
  EXPECT_EQ(tuner.threads(), 4);
  // A different program takes the cores: many threads wait for each other.
  measure(tuner, [](int threads) { return 0.01 * threads * threads; });
  EXPECT_EQ(tuner.threads(), 1);
}

TEST(ThreadTuner, FindsOutInTimeThatTheCoresAreFreeAgain) {
  ThreadTuner tuner(4);
  measure(tuner, [](int threads) { return 0.04 * threads; });
  EXPECT_EQ(tuner.threads(), 1);
  double seconds = 0;
  while (tuner.threads() != 4 && seconds < 1000) {
    const double window = 0.04 / tuner.threads();
    seconds += window * static_cast<double>(tuner.windows());
    (void)tuner.add(window);
  }
  EXPECT_LT(seconds, 200);
}

TEST(ThreadTuner, SpendsLittleTimeOnMeasuring) {
  ThreadTuner tuner(2);
  const auto cost = [](int threads) { return threads == 1 ? 0.02 : 0.03; };  // measuring costs half as much again
  double measuring = 0, seconds = 0;
  while (seconds < 24 * 3600) {
    const double window = cost(tuner.threads());
    const double all = window * static_cast<double>(tuner.windows());
    (tuner.threads() == 2 ? measuring : seconds) += all;
    (void)tuner.add(window);
  }
  EXPECT_LT(measuring / seconds, 0.001);
}

TEST(ThreadTuner, NoticesWithinSecondsThatOtherProgramsTookTheCores) {
  ThreadTuner tuner(2);
  double seconds = 0;
  const auto run = [&](double until, const Cost& cost) {
    seconds = 0;
    while (seconds < until) {
      const double window = cost(tuner.threads());
      seconds += window * static_cast<double>(tuner.windows());
      (void)tuner.add(window);
    }
  };
  run(30, [](int threads) { return threads == 2 ? 1e-4 : 1.6e-4; });
  EXPECT_EQ(tuner.threads(), 2);
  run(10, [](int threads) { return threads == 2 ? 22e-4 : 1.9e-4; });
  EXPECT_EQ(tuner.threads(), 1);
}

// Measured while another program ran, which has ended; then one takes the cores again.
TEST(ThreadTuner, ComparesWithTheTimesOfAQuietMachine) {
  ThreadTuner tuner(2);
  measure(tuner, [](int threads) { return threads == 2 ? 0.01 : 0.02; });
  ASSERT_EQ(tuner.threads(), 2);
  for (int k = 0; k < 100; ++k) EXPECT_FALSE(tuner.add(0.002));
  measure(tuner, [](int threads) { return threads == 2 ? 0.01 : 0.003; });
  EXPECT_EQ(tuner.threads(), 1);
}

TEST(ThreadTuner, SpendsLittleTimeWhereTimesVary) {
  ThreadTuner tuner(2);
  double measuring = 0, seconds = 0;
  for (int k = 0; seconds < 3600; ++k) {
    const double window = tuner.threads() == 2 ? 0.02 : k / 40 % 2 == 0 ? 0.006 : 0.012;
    const double all = window * static_cast<double>(tuner.windows());
    (tuner.threads() == 2 ? measuring : seconds) += all;
    (void)tuner.add(window);
  }
  EXPECT_LT(measuring / seconds, 0.01);
}

TEST(ThreadTuner, MeasuresAgainFromTheNumberOfAnEarlierFit) {
  ThreadTuner tuner(8, 2);
  EXPECT_EQ(tuner.threads(), 2);
  measure(tuner, [](int threads) { return 0.08 / threads; });
  EXPECT_EQ(tuner.timed().front().threads, 2);
  EXPECT_EQ(tuner.threads(), 8);
  ThreadTuner same(8, 2);
  measure(same, [](int threads) { return threads == 2 ? 0.01 : 0.02; });
  EXPECT_EQ(same.threads(), 2);
  EXPECT_EQ(ThreadTuner(2, 16).threads(), 2) << "on a smaller machine";
}

TEST(ThreadTuner, MakesTheSameChoiceFromTheSameTimes) {
  ThreadTuner one(8), other(8);
  for (int k = 0; k < 5000; ++k) {
    const double seconds = 0.01 * (1 + (k * 7919 % 13) / 10.0) / one.threads();
    EXPECT_EQ(one.add(seconds), other.add(seconds));
    ASSERT_EQ(one.threads(), other.threads());
    ASSERT_EQ(one.windows(), other.windows());
  }
}

}  // namespace
}  // namespace levin::thread_tuner_test
