// Flat, sharded parameters: layout and memory, without any message.
#include "levin/strategies/process/flat_unit.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>
#include <gtest/gtest.h>

namespace levin::flat_unit_test {
namespace {

using Named = std::vector<std::pair<std::string, at::Tensor>>;

at::Tensor numbers(int64_t first, at::IntArrayRef shape) {
  return at::arange(first, first + c10::multiply_integers(shape), at::kFloat).view(shape);
}

TEST(FlatUnit, LaysParametersOneAfterAnotherAndGivesEachRankAnEqualShard) {
  const Named params = {{"weight", numbers(0, {2, 3})}, {"bias", numbers(6, {3})}};
  FlatUnit unit(params, {.rank = 1, .ranks = 2});
  EXPECT_EQ(unit.part_size(), 5);  // 9 numbers and one of padding
  EXPECT_EQ(unit.whole().numel(), 10);
  EXPECT_TRUE(at::equal(unit.whole().narrow(0, 0, 9), numbers(0, {9})));
  EXPECT_EQ(unit.whole()[9].item<float>(), 0);
  EXPECT_TRUE(at::equal(unit.part().narrow(0, 0, 4), numbers(5, {4})));
  EXPECT_EQ(unit.range(0).flat_offset(), 5);
  EXPECT_EQ(unit.range(0).numel(), 1);
  EXPECT_EQ(unit.range(0).shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(unit.range(1).flat_offset(), 0);
  EXPECT_EQ(unit.range(1).numel(), 3);
}

TEST(FlatUnit, PartsOfAllRanksCoverEveryParameterOnce) {
  for (const int64_t ranks : {1, 2, 3, 4, 7, 20}) {
    const Named params = {{"a", numbers(0, {5})}, {"b", numbers(5, {2, 2})}, {"c", numbers(9, {1})}};
    const FlatUnit unit(params, {.rank = 0, .ranks = ranks});
    for (size_t i = 0; i < params.size(); ++i) {
      int64_t next = 0;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const ShardRange range = unit.range_on(i, rank);
        if (range.numel() == 0) continue;
        EXPECT_EQ(range.flat_offset(), next) << ranks << " ranks, parameter " << i << ", rank " << rank;
        next += range.numel();
      }
      EXPECT_EQ(next, unit.entries()[i].size) << ranks << " ranks, parameter " << i;
    }
  }
}

TEST(FlatUnit, ShowsTheSameTensorsAsWholesAndAsParts) {
  const at::Tensor weight = numbers(0, {2, 3}).set_requires_grad(true);
  const at::Tensor bias = numbers(6, {3});
  const at::TensorImpl* before = weight.unsafeGetTensorImpl();
  FlatUnit unit({{"weight", weight}, {"bias", bias}}, {.rank = 0, .ranks = 2});
  EXPECT_EQ(weight.unsafeGetTensorImpl(), before);
  EXPECT_TRUE(weight.requires_grad());
  EXPECT_TRUE(at::equal(weight, numbers(0, {2, 3})));
  unit.show_part();
  EXPECT_TRUE(at::equal(weight, numbers(0, {5})));
  EXPECT_EQ(bias.numel(), 0);
  unit.show_whole();
  EXPECT_EQ(weight.sizes(), (std::vector<int64_t>{2, 3}));
  EXPECT_TRUE(at::equal(bias, numbers(6, {3})));
}

TEST(FlatUnit, APartIsInTheWholesMemoryUnlessTypesDifferOrTheWholeIsGivenBack) {
  const auto shares = [](const FlatUnit& unit) { return unit.part().is_alias_of(unit.whole()); };
  const auto make = [] { return Named{{"weight", numbers(0, {8})}}; };
  EXPECT_TRUE(shares(FlatUnit(make(), {.ranks = 2})));
  EXPECT_FALSE(shares(FlatUnit(make(), {.ranks = 2, .keeps_whole = false})));
  const FlatUnit narrow(make(), {.ranks = 2, .compute_dtype = at::kBFloat16});
  EXPECT_FALSE(shares(narrow));
  EXPECT_EQ(narrow.part().scalar_type(), at::kFloat);
  EXPECT_EQ(narrow.entries()[0].param.scalar_type(), at::kBFloat16);
}

TEST(FlatUnit, TakesPartsOfWhatTheRanksHaveAgreedOn) {
  for (const bool keeps : {true, false}) {
    const at::Tensor weight = numbers(0, {2, 3});
    const FlatUnit unit(
        {{"weight", weight}},
        {.rank = 1, .ranks = 2, .keeps_whole = keeps, .agree = [](at::Tensor& whole) { whole.add_(10); }});
    EXPECT_TRUE(at::equal(unit.part(), numbers(13, {3})));
    EXPECT_TRUE(at::equal(weight, numbers(10, {2, 3})));
  }
}

TEST(FlatUnit, AWholeThatWasGivenBackHasNoMemoryAndItsViewsComeToLifeAgain) {
  const at::Tensor weight = numbers(0, {4});
  FlatUnit unit({{"weight", weight}}, {.rank = 1, .ranks = 2, .keeps_whole = false});
  const at::Tensor view = weight.view({2, 2});
  unit.free_whole();
  EXPECT_FALSE(unit.has_whole());
  EXPECT_EQ(weight.storage().nbytes(), 0U);
  EXPECT_EQ(weight.sizes(), (std::vector<int64_t>{4}));
  EXPECT_TRUE(at::equal(unit.part(), numbers(2, {2})));
  unit.allocate_whole();
  at::Tensor(unit.whole()).copy_(numbers(0, {4}));
  EXPECT_TRUE(at::equal(view, numbers(0, {2, 2})));
}

TEST(UnitParameters, FollowTheModulesOrderAndKeepALayerTogether) {
  const Named params = {{"net.0.weight", at::zeros({100})},
                        {"net.0.bias", at::zeros({10})},
                        {"net.1.weight", at::zeros({100})},
                        {"net.1.bias", at::zeros({10})},
                        {"net.2.weight", at::zeros({10})}};
  const auto units = unit_parameters(params, 400);
  ASSERT_EQ(units.size(), 3U);
  EXPECT_EQ(units[0].size(), 2U);
  EXPECT_EQ(units[1].back().first, "net.1.bias");
  EXPECT_EQ(units[2][0].first, "net.2.weight");
  EXPECT_EQ(unit_parameters(params, 1 << 20).size(), 1U);
}

TEST(UnitParameters, CountASharedTensorOnceAndKeepTypesApart) {
  const at::Tensor tied = at::ones({4});
  const auto units = unit_parameters({{"a", tied}, {"b", tied}, {"c", at::ones({4}, at::kDouble)}}, 1 << 20);
  ASSERT_EQ(units.size(), 2U);
  EXPECT_EQ(units[0].size(), 1U);
  EXPECT_EQ(units[1][0].first, "c");
}

}  // namespace
}  // namespace levin::flat_unit_test
