// Curves whose trend is known: falling, flat, rising, each with noise.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "cli/metric_series.h"
#include "levin/cli/runs/run_health.h"

namespace levin::loss_trend_test {
namespace {

using namespace test;
using Kind = LossTrend::Kind;

// In how many of 200 curves of `count` values each kind was seen: `curve` of the part of the run that is over (0 to 1)
// plus normal noise.
template <class Function>
std::map<Kind, int> kinds_of(int64_t count, double noise, const Function& curve) {
  std::map<Kind, int> kinds;
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal(0, noise);
    ++kinds[loss_trend(series_of(count, [&](int64_t k) {
              return curve(static_cast<double>(k) / static_cast<double>(count)) + normal(random);
            })).kind];
  }
  return kinds;
}

TEST(LossTrend, AFallBeneathNoiseIsNotCalledFlat) {
  const auto line = [](double done) { return 3 - 2 * done; };
  for (const int64_t count : {20, 40, 100, 1000}) {
    for (const double noise : {0.02, 0.1, 0.3}) {
      auto kinds = kinds_of(count, noise, line);
      EXPECT_LE(kinds[Kind::flat], 2) << count << " values, noise " << noise;
      EXPECT_LE(kinds[Kind::rising], 2) << count << " values, noise " << noise;
    }
  }
  EXPECT_GE(kinds_of(1000, 0.3, line)[Kind::falling], 198);
  EXPECT_GE(kinds_of(100, 0.1, line)[Kind::falling], 198);
  EXPECT_GE(kinds_of(20, 0.3, line)[Kind::hidden], 100);  // six values whose noise is half of what they fell
}

TEST(LossTrend, ASlowingFallIsStillAFall) {
  const auto curve = [](double done) { return 1 + 1 / (1 + 10 * done); };  // the last three tenths: 0.03
  EXPECT_GE(kinds_of(10'000, 0.1, curve)[Kind::falling], 198);
  EXPECT_LE(kinds_of(200, 0.1, curve)[Kind::falling], 40);
}

TEST(LossTrend, ALossThatNeverFellIsFlatFromItsFirstStep) {
  for (const int64_t count : {400, 2000}) {
    EXPECT_GE(kinds_of(count, 0.1, [](double) { return 2.3; })[Kind::flat], 185) << count;
  }
  const LossTrend constant = loss_trend(series_of(100, [](int64_t) { return 2.3; }));
  EXPECT_EQ(constant.kind, Kind::flat);
  EXPECT_EQ(constant.flat_since, 0);
}

TEST(LossTrend, ALossThatFellAndStoppedIsFlatSinceThen) {
  const auto curve = [](double done) { return done < 0.4 ? 3 - 5 * done : 1.0; };
  EXPECT_GE(kinds_of(1000, 0.1, curve)[Kind::flat], 185);
  std::mt19937 random(3);
  std::normal_distribution<double> noise(0, 0.1);
  const MetricSeries series =
      series_of(1000, [&](int64_t k) { return curve(0.001 * static_cast<double>(k)) + noise(random); });
  const LossTrend trend = loss_trend(series);
  ASSERT_EQ(trend.kind, Kind::flat);
  EXPECT_EQ(trend.flat_since, 4000);
  EXPECT_NEAR(trend.start, 2.88, 0.05);
  EXPECT_NEAR(trend.end, 1, 0.05);
}

TEST(LossTrend, ARiseAfterAFallIsSeenWithItsLowestPoint) {
  const auto curve = [](double done) { return 1 + 2 * std::abs(done - 0.5); };
  EXPECT_GE(kinds_of(1000, 0.1, curve)[Kind::rising], 198);
  EXPECT_GE(kinds_of(100, 0.1, curve)[Kind::rising], 198);
  const LossTrend trend = loss_trend(series_of(1000, [&](int64_t k) { return curve(0.001 * static_cast<double>(k)); }));
  EXPECT_NEAR(static_cast<double>(trend.lowest_step), 5000, 1000);
}

TEST(LossTrend, ALossThatExplodesRises) {
  for (const double factor : {1.5, 3.0, 20.0}) {
    const LossTrend trend =
        loss_trend(series_of(24, [&](int64_t k) { return std::pow(factor, static_cast<double>(k)); }));
    EXPECT_EQ(trend.kind, Kind::rising) << factor;
    EXPECT_EQ(trend.lowest_step, 10) << factor;
  }
}

TEST(LossTrend, OfAFewValuesIsNotJudged) {
  EXPECT_EQ(loss_trend(series_of(19, [](int64_t k) { return 1.0 - 0.01 * static_cast<double>(k); })).kind,
            Kind::too_short);
}

TEST(LossTrend, NanAtTheEndIsNamedWithItsFirstStep) {
  const LossTrend trend =
      loss_trend(series_of(100, [](int64_t k) { return k < 70 ? 1.0 / static_cast<double>(k + 1) : std::nan(""); }));
  EXPECT_EQ(trend.kind, LossTrend::Kind::nonfinite);
  EXPECT_EQ(trend.nonfinite, 30);
  EXPECT_EQ(trend.nonfinite_step, 700);
}

TEST(LossTrend, SpikesAreCounted) {
  std::mt19937 random(5);
  std::normal_distribution<double> noise(0, 0.05);
  MetricSeries series =
      series_of(2000, [&](int64_t k) { return 3 * std::exp(-static_cast<double>(k) / 500) + 0.5 + noise(random); });
  EXPECT_EQ(loss_trend(series).spikes, 0);
  series.values[1500] = 6;
  series.values[1700] = 9;
  EXPECT_EQ(loss_trend(series).spikes, 2);
  EXPECT_EQ(loss_trend(series).highest_spike_step, 17'000);
}

}  // namespace
}  // namespace levin::loss_trend_test
