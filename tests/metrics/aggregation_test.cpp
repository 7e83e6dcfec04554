#include "levin/metrics/aggregation.h"

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/field_count.h"

namespace levin::aggregation_test {
namespace {

using namespace metrics;

const double kNan = std::nan("");

double value_of(const Metric& metric) {
  return metric.compute().item<double>();
}

TEST(AggregationOptions, ListEveryField) {
  EXPECT_EQ(testing::field_count<AggregationOptions>(), field_names<AggregationOptions>().size());
}

TEST(Aggregation, WithoutValuesIsWhatTorchmetricsGives) {
  EXPECT_TRUE(std::isnan(value_of(MeanMetric())));
  EXPECT_EQ(value_of(SumMetric()), 0);
  EXPECT_EQ(value_of(MinMetric()), std::numeric_limits<double>::infinity());
  EXPECT_EQ(value_of(MaxMetric()), -std::numeric_limits<double>::infinity());
}

TEST(Aggregation, AMeanWeighsItsValues) {
  MeanMetric mean;
  mean.update(1.0, 3.0);
  mean.update(at::tensor({2.0F, 4.0F}), at::tensor({1.0F, 0.0F}));
  mean.update(at::tensor({5.0F, 7.0F}), 2.0);
  EXPECT_DOUBLE_EQ(value_of(mean), (3.0 + 2 + 10 + 14) / 8);
  mean.reset();
  mean(at::tensor({1, 2}));
  EXPECT_DOUBLE_EQ(value_of(mean), 1.5);
}

TEST(Aggregation, TheValueOfABatchIsItsOwn) {
  SumMetric sum;
  sum(at::tensor({1.0F, 2.0F}));
  sum(5.0);
  EXPECT_EQ(sum.batch_value().item<double>(), 5);
  EXPECT_EQ(value_of(sum), 8);
}

TEST(Aggregation, SumsOfManyFloatsLoseNothing) {
  SumMetric sum;
  MeanMetric mean;
  const at::Tensor tenth = at::full({1000}, 0.1F);
  for (int batch = 0; batch < 1000; ++batch) {
    sum.update(tenth);
    mean.update(tenth);
  }
  EXPECT_NEAR(value_of(sum), 1e6 * static_cast<double>(0.1F), 1e-6);
  EXPECT_NEAR(value_of(mean), static_cast<double>(0.1F), 1e-15);
}

TEST(Aggregation, NanIsLeftOutWithAWarning) {
  const test::CapturedConsole console;
  MeanMetric mean;
  mean.update(at::tensor({1.0, kNan, 3.0}));
  mean.update(kNan);
  EXPECT_EQ(value_of(mean), 2);
  EXPECT_TRUE(
      console.has("MeanMetric: values that are nan are left out. Set .nan_strategy to choose what happens to them."));
  EXPECT_EQ(console.lines().size(), 2U);
}

TEST(Aggregation, NanIsAnErrorThatChangesNothing) {
  SumMetric sum({.nan_strategy = NanStrategy::error});
  sum.update(2.0);
  for (const auto& update :
       {std::function<void()>([&] {
          sum.update(at::tensor({1.0, kNan}));
        }),
        std::function<void()>([&] { sum.update(kNan); }), std::function<void()>([&] { sum(kNan); })}) {
    EXPECT_TRUE(test::holds(test::error_of<Error>(update), {"SumMetric: a value or its weight is nan.",
                                                            "set .nan_strategy to ignore, or to a number"}));
  }
  EXPECT_EQ(value_of(sum), 2);
  EXPECT_EQ(sum.update_count(), 1);
}

TEST(Aggregation, NanIsIgnoredReplacedOrAValue) {
  const test::CapturedConsole console;
  MinMetric least({.nan_strategy = NanStrategy::ignore});
  least.update(at::tensor({3.0, kNan}));
  EXPECT_EQ(value_of(least), 3);
  MinMetric zero({.nan_strategy = 0.0});
  zero.update(at::tensor({3.0, kNan}));
  EXPECT_EQ(value_of(zero), 0);
  MaxMetric any({.nan_strategy = NanStrategy::disable});
  any.update(at::tensor({3.0, kNan}));
  any.update(4.0);
  EXPECT_TRUE(std::isnan(value_of(any)));
  EXPECT_TRUE(console.lines().empty());
}

TEST(Aggregation, RanksCombine) {
  MinMetric one, other;
  one.update(3.0);
  other.update(-2.0);
  one.merge(other.states(), 1);
  EXPECT_EQ(value_of(one), -2);
  MeanMetric mean, rest;
  mean.update(3.0, 2.0);
  rest.update(9.0);
  mean.merge(rest.states(), 1);
  EXPECT_EQ(value_of(mean), 5);
}

TEST(Aggregation, StateReturnsFromACheckpoint) {
  MaxMetric max;
  max.update(7.0);
  MaxMetric again;
  again.load_state_dict(max.state_dict());
  EXPECT_EQ(value_of(again), 7);
  EXPECT_EQ(again.update_count(), 1);
}

}  // namespace
}  // namespace levin::aggregation_test
