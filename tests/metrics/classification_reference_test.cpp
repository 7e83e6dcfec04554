// Classification metrics against the numbers of torchmetrics 1.9 (recorded/classification.json, by record_cases.py).
#include <ATen/ops/isnan.h>
#include <gtest/gtest.h>

#include "metrics/classification_cases.h"
#include "support/paths.h"

namespace levin::classification_reference_test {
namespace {

using namespace levin::testing;

const nlohmann::json& recorded() {
  static const nlohmann::json all = read_cases(test::source_dir() + "/tests/metrics/recorded/classification.json");
  return all;
}

::testing::AssertionResult is_near(const at::Tensor& value, const at::Tensor& expected, double tolerance = 1e-6) {
  if (value.sizes() != expected.sizes() || value.scalar_type() != expected.scalar_type()) {
    return ::testing::AssertionFailure() << value << " instead of " << expected;
  }
  const at::Tensor gap = value.to(at::kDouble).sub(expected.to(at::kDouble)).abs();
  const at::Tensor both_nan = value.isnan().logical_and(expected.isnan());
  if (gap.le(tolerance).logical_or(both_nan).all().item<bool>()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << value << " instead of " << expected;
}

// check(metric's name, options, batches, the value expected) for each case.
template <class Check>
void for_each_case(Check check) {
  size_t count = 0;
  for (const auto& one : recorded().at("cases")) {
    SCOPED_TRACE(one.dump());
    const Batches batches = batches_of(recorded().at("inputs").at(one.at("input").get<std::string>()));
    check(one.at("metric").get<std::string>(), one.at("options"), batches, tensor_of(one.at("value")));
    ++count;
  }
  EXPECT_GT(count, 900U);
}

TEST(ClassificationReference, GivesTheNumbersOfTorchmetrics) {
  for_each_case([](const auto& name, const auto& options, const Batches& batches, const at::Tensor& expected) {
    EXPECT_TRUE(is_near(value_of(*make_metric(name, options), batches), expected));
  });
}

TEST(ClassificationReference, GivesThemWhenBatchesAreSplitOverTwoRanks) {
  for_each_case([](const auto& name, const auto& options, const Batches& batches, const at::Tensor& expected) {
    EXPECT_TRUE(is_near(value_of_two_ranks(name, options, batches), expected));
  });
}

// Scores in a layout that loops do not read: the same numbers in every second column of memory.
at::Tensor spread(const at::Tensor& tensor) {
  const at::Tensor pairs = at::stack({tensor, tensor}, -1);
  return pairs.select(-1, 1);
}

TEST(ClassificationReference, GivesThemByOperatorsToo) {
  size_t by_operators = 0;
  for_each_case([&](const auto& name, const auto& options, const Batches& batches, const at::Tensor& expected) {
    Batches others;
    for (const auto& [preds, target] : batches) others.emplace_back(spread(preds), spread(target));
    if (batches[0].first.is_floating_point()) ++by_operators;
    EXPECT_TRUE(is_near(value_of(*make_metric(name, options), others), expected));
  });
  EXPECT_GT(by_operators, 700U);
}

TEST(ClassificationReference, LoopsAndOperatorsCountTheSame) {
  for_each_case([](const auto& name, const auto& options, const Batches& batches, const at::Tensor&) {
    const auto direct = make_metric(name, options);
    const auto by_operators = make_metric(name, options);
    static_cast<void>(value_of(*direct, batches));
    for (const auto& [preds, target] : batches) by_operators->update(spread(preds), target.to(at::kInt));
    const auto ours = direct->states();
    const auto theirs = by_operators->states();
    for (size_t k = 0; k < ours.size(); ++k) {
      ASSERT_EQ(ours[k].scalar_type(), theirs[k].scalar_type());
      EXPECT_TRUE(ours[k].allclose(theirs[k], 0, ours[k].is_floating_point() ? 1e-6 : 0)) << "state " << k;
    }
  });
}

TEST(ClassificationReference, HoldsForDoublePrecision) {
  for_each_case([](const auto& name, const auto& options, const Batches& batches, const at::Tensor& expected) {
    if (!batches[0].first.is_floating_point()) return;
    // A score of a table that is on the edge of a bin as a float is not as a double.
    if (name == "CalibrationError" || options.contains("thresholds")) return;
    Batches others;
    for (const auto& [preds, target] : batches) others.emplace_back(preds.to(at::kDouble), target);
    EXPECT_TRUE(is_near(value_of(*make_metric(name, options), others), expected));
  });
}

}  // namespace
}  // namespace levin::classification_reference_test
