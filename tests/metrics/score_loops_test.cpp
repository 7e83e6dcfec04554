// Scores that are looked at, and copied, block by block.
#include "levin/metrics/score_loops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace levin::score_loops_test {
namespace {

using namespace levin::metrics;

std::vector<float> inside(int64_t count) {
  std::vector<float> scores(static_cast<size_t>(count));
  for (size_t i = 0; i < scores.size(); ++i) scores[i] = static_cast<float>(i % 11) / 10.0F;  // 0 and 1 are in [0, 1]
  return scores;
}

TEST(ScoreLoops, OneScoreOutsideIsFoundWhereverItIs) {
  for (const int64_t count : {1, 7, 2048, 5000}) {
    std::vector<float> scores = inside(count);
    EXPECT_FALSE(any_outside_unit(scores.data(), count));
    for (const int64_t at : {int64_t{0}, count / 2, count - 1}) {
      std::vector<float> changed = scores;
      float& score = changed[static_cast<size_t>(at)];
      for (const float odd : {-1.1e-4F, 1.0002F, std::numeric_limits<float>::infinity(), std::nanf("")}) {
        score = odd;
        EXPECT_TRUE(any_outside_unit(changed.data(), count)) << odd << " at " << at << " of " << count;
      }
      for (const float rounded : {-1e-30F, -9e-5F, 1.0000001F, 1.00009F}) {
        score = rounded;
        EXPECT_FALSE(any_outside_unit(changed.data(), count)) << rounded << " at " << at << " of " << count;
      }
    }
  }
  EXPECT_FALSE(any_outside_unit(nullptr, 0));
}

TEST(ScoreLoops, CopiesAllScoresAfterOneOutsideToo) {
  for (const float first : {0.5F, 3.0F}) {
    std::vector<float> scores = inside(5000);
    scores[0] = first;
    std::vector<float> copy(5001, 7.0F);
    EXPECT_EQ(copy_and_look(scores.data(), 5000, copy.data()), first > 1);
    EXPECT_TRUE(std::equal(scores.begin(), scores.end(), copy.begin()));
    EXPECT_EQ(copy[5000], 7.0F) << "nothing is written after the last score";
  }
}

}  // namespace
}  // namespace levin::score_loops_test
