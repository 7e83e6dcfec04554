// Metrics of numbers, text, images and masks against the numbers of torchmetrics 1.9 (recorded/other.json, by
// record_other_cases.py).
#include <ATen/ops/isnan.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>

#include "metrics/other_cases.h"
#include "support/captured_console.h"
#include "support/paths.h"

namespace levin::other_reference_test {
namespace {

using namespace other_cases;

const Json& recorded() {
  static const Json all = read_cases(test::source_dir() + "/tests/metrics/recorded/other.json");
  return all;
}

::testing::AssertionResult is_near(const at::Tensor& value, const at::Tensor& expected, double tolerance) {
  const at::Tensor here = value.to(at::kDouble);
  if (here.sizes() != expected.sizes()) return ::testing::AssertionFailure() << value << " instead of " << expected;
  const at::Tensor same = here.eq(expected).logical_or(here.isnan().logical_and(expected.isnan()));
  const at::Tensor near = here.sub(expected).abs().le(expected.abs().clamp_min(1).mul(tolerance));
  if (same.logical_or(near).all().item<bool>()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << value << " instead of " << expected;
}

void compare_all(
    size_t ranks, const Change& change, double tolerance = 1e-6,
    const std::function<bool(const Json&)>& takes_part = [](const Json&) { return true; }) {
  const test::CapturedConsole console;
  const auto grid = recorded().at("grid").get<double>();
  size_t count = 0;
  for (const auto& one : recorded().at("cases")) {
    if (!takes_part(one)) continue;
    SCOPED_TRACE(one.at("metric").dump() + one.at("options").dump() + one.at("batches").dump().substr(0, 120));
    EXPECT_TRUE(is_near(run_case(one, grid, ranks, change), value_of(one.at("value")), tolerance));
    ++count;
  }
  EXPECT_GT(count, 100U);
}

TEST(OtherMetricsReference, GiveTheNumbersOfTorchmetrics) {
  EXPECT_EQ(recorded().at("torchmetrics"), "1.9.0");
  EXPECT_GT(recorded().at("cases").size(), 250U);
  compare_all(1, unchanged);
}

TEST(OtherMetricsReference, GiveThemWhenBatchesAreSplitOverTwoRanks) {
  compare_all(2, unchanged);
}

TEST(OtherMetricsReference, GiveThemWhenBatchesAreSplitOverFiveRanksOfWhichSomeHaveNone) {
  compare_all(5, unchanged);
}

at::Tensor as_double(const at::Tensor& tensor) {
  return tensor.is_floating_point() ? tensor.to(at::kDouble) : tensor;
}

TEST(OtherMetricsReference, GiveThemInDoublePrecision) {
  compare_all(1, as_double, 1e-9, [](const Json& one) {
    // torchmetrics divides counts, takes some logarithms, and reads vectors for their cosine, in float: those cases are
    // left out.
    for (const char* name : {"Error", "R2Score", "Pearson", "Perplexity", "StructuralSimilarity", "Mean", "Sum",
                             "MinMetric", "MaxMetric"}) {
      const auto metric = one.at("metric").get<std::string>();
      if (metric != "MeanIoU" && metric.find(name) != std::string::npos) return true;
    }
    return false;
  });
}

// Returns the same numbers in every second column of memory, with a graph attached.
at::Tensor spread(const at::Tensor& tensor) {
  const at::Tensor pairs = at::stack({tensor, tensor}, -1);
  return tensor.is_floating_point() ? pairs.requires_grad_().mul(1).select(-1, 1) : pairs.select(-1, 1);
}

TEST(OtherMetricsReference, GiveThemForTensorsThatAreSpreadInMemoryAndHaveAGraph) {
  compare_all(1, spread);
}

}  // namespace
}  // namespace levin::other_reference_test
