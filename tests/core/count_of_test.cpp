#include <gtest/gtest.h>

#include "levin/core/options/error.h"

namespace levin::count_of_test {
namespace {

TEST(CountOf, OneIsSingularAndAllElseIsPlural) {
  EXPECT_EQ(count_of(1, "step"), "1 step");
  EXPECT_EQ(count_of(0, "step"), "0 steps");
  EXPECT_EQ(count_of(2, "step"), "2 steps");
  EXPECT_EQ(count_of(-1, "step"), "-1 steps");
}

TEST(CountOf, TakesAPluralOfADifferentForm) {
  EXPECT_EQ(count_of(1, "batch", "batches"), "1 batch");
  EXPECT_EQ(count_of(157, "batch", "batches"), "157 batches");
}

}  // namespace
}  // namespace levin::count_of_test
