// The highest of a row of scores, and its probability.
#include "levin/metrics/label_loops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace levin::label_loops_test {
namespace {

using namespace levin::metrics;

TEST(LabelLoops, HighestProbabilityIsThatOfSoftmax) {
  for (const int64_t count : {1, 3, 10, 64, 100, 256}) {
    std::vector<float> logits(static_cast<size_t>(count));
    double sum = 0;
    for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 7) * 3.3F - 200;
    const int64_t first = highest(logits.data(), count);
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - logits[static_cast<size_t>(first)]);
    EXPECT_NEAR(highest_probability(logits.data(), count, first), 1 / sum, 1e-6 / sum) << count;
  }
  const std::vector<float> odd = {1, std::nanf("1")};
  EXPECT_TRUE(std::isnan(highest_probability(odd.data(), 2, 1)));
  const std::vector<float> infinite = {1, std::numeric_limits<float>::infinity()};
  EXPECT_TRUE(std::isnan(highest_probability(infinite.data(), 2, 1)));
}

}  // namespace
}  // namespace levin::label_loops_test
