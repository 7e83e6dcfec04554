// Sizes are computed with Python's rules. What Python gives: python3 -c 'print(-7 // 2, -7 % 2, 7 % -2, 7 / 2, 2 **
// -1)'.
#include <cmath>
#include <limits>

#include "levin/core/options/error.h"
#include "levin/models/exported/bound_graph.h"
#include "support/error_text.h"

namespace levin::number_operators_test {
namespace {

using c10::IValue;
using exported::number_operator;

IValue call(const std::string& target, const std::vector<IValue>& arguments) {
  return number_operator(target, arguments.size())(arguments);
}

TEST(NumberOperators, RoundDownAsPythonDoes) {
  EXPECT_EQ(call("_operator.floordiv", {-7, 2}).toInt(), -4);
  EXPECT_EQ(call("_operator.floordiv", {7, 2}).toInt(), 3);
  EXPECT_EQ(call("_operator.mod", {-7, 2}).toInt(), 1);
  EXPECT_EQ(call("_operator.mod", {7, -2}).toInt(), -1);
  EXPECT_EQ(call("_operator.floordiv", {-7.0, 2}).toDouble(), -4.0);
  EXPECT_EQ(call("_operator.mod", {-7.0, 2.0}).toDouble(), 1.0);
}

TEST(NumberOperators, WholeNumbersStayWholeAndQuotientsAreReal) {
  EXPECT_EQ(call("_operator.add", {2, 3}).toInt(), 5);
  EXPECT_EQ(call("_operator.sub", {2, 3}).toInt(), -1);
  EXPECT_EQ(call("_operator.mul", {2, 1.5}).toDouble(), 3.0);
  EXPECT_EQ(call("_operator.truediv", {7, 2}).toDouble(), 3.5);
  EXPECT_EQ(call("_operator.pow", {3, 4}).toInt(), 81);
  EXPECT_EQ(call("_operator.pow", {2, -1}).toDouble(), 0.5);
  EXPECT_EQ(call("_operator.neg", {4}).toInt(), -4);
  EXPECT_EQ(call("math.trunc", {-2.7}).toInt(), -2);
  EXPECT_EQ(call("torch.sym_float", {3}).toDouble(), 3.0);
  EXPECT_EQ(call("torch._sym_sqrt", {16}).toDouble(), 4.0);
}

TEST(NumberOperators, RemaindersOfTheLargestNumbersFit) {
  const int64_t least = std::numeric_limits<int64_t>::min(), largest = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(call("_operator.mod", {least, -1}).toInt(), 0);
  EXPECT_EQ(call("_operator.mod", {least, 3}).toInt(), 1);
  EXPECT_EQ(call("_operator.mod", {largest, -2}).toInt(), -1);
  EXPECT_EQ(call("_operator.mod", {least, largest}).toInt(), largest - 1);
}

TEST(NumberOperators, ComparisonsAndChoices) {
  EXPECT_TRUE(call("_operator.le", {2, 2}).toBool());
  EXPECT_FALSE(call("_operator.lt", {2, 2}).toBool());
  EXPECT_TRUE(call("_operator.ne", {2, 2.5}).toBool());
  EXPECT_TRUE(call("torch.sym_not", {false}).toBool());
  EXPECT_FALSE(call("_operator.and_", {true, false}).toBool());
  EXPECT_EQ(call("torch.sym_max", {3, 5}).toInt(), 5);
  EXPECT_EQ(call("torch.sym_min", {3, 5}).toInt(), 3);
  EXPECT_EQ(call("torch.sym_ite", {false, 3, 5}).toInt(), 5);
  EXPECT_EQ(call("_operator.lshift", {3, 2}).toInt(), 12);
}

TEST(NumberOperators, WhatHasNoResultIsAnError) {
  const int64_t largest = std::numeric_limits<int64_t>::max();
  const auto error = [](const std::string& target, const std::vector<IValue>& arguments) {
    return test::error_of<Error>([&] { (void)call(target, arguments); });
  };
  EXPECT_TRUE(test::holds(error("_operator.floordiv", {1, 0}), {"divides a size by zero"}));
  EXPECT_TRUE(test::holds(error("_operator.mod", {1.0, 0.0}), {"divides a size by zero"}));
  EXPECT_TRUE(test::holds(error("_operator.mod", {1, 0}), {"divides a size by zero"}));
  EXPECT_TRUE(test::holds(error("_operator.floordiv", {std::numeric_limits<int64_t>::min(), -1}), {"64 bits"}));
  EXPECT_TRUE(test::holds(error("_operator.mul", {largest, 2}), {"does not fit into 64 bits"}));
  EXPECT_TRUE(test::holds(error("_operator.add", {largest, 1}), {"does not fit into 64 bits"}));
  EXPECT_TRUE(test::holds(error("math.trunc", {1e30}), {"does not fit into 64 bits"}));
  EXPECT_TRUE(test::holds(error("_operator.lshift", {1, 70}), {"shifts a size by 70 bits"}));
  EXPECT_EQ(number_operator("_operator.add", 3), nullptr);
  EXPECT_EQ(number_operator("os.system", 1), nullptr);
}

}  // namespace
}  // namespace levin::number_operators_test
