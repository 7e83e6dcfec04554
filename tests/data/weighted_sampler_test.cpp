#include "levin/data/loading/weighted_sampler.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/data/loading/dataloader.h"
#include "support/error_text.h"
#include "support/paths.h"

namespace levin::weighted_sampler_test {
namespace {

using test::error_of;
using test::holds;

std::vector<int64_t> numbers(const at::Tensor& tensor) {
  const at::Tensor own = tensor.contiguous();
  return {own.const_data_ptr<int64_t>(), own.const_data_ptr<int64_t>() + own.numel()};
}

// Sum of (seen - expected)^2 / expected over the weights above 0.
double chi_square(const at::Tensor& drawn, const std::vector<double>& weights) {
  double sum = 0, chi = 0;
  for (const double weight : weights) sum += weight;
  const at::Tensor seen = at::bincount(drawn, {}, static_cast<int64_t>(weights.size()));
  for (size_t i = 0; i < weights.size(); ++i) {
    const double expected = static_cast<double>(drawn.numel()) * weights[i] / sum;
    const double count = seen[static_cast<int64_t>(i)].item<double>();
    EXPECT_TRUE(weights[i] > 0 || count == 0) << i;
    if (weights[i] > 0) chi += (count - expected) * (count - expected) / expected;
  }
  return chi;
}

// Made by reference/weighted_sampler.py with PyTorch for Python.
TEST(WeightedRandomSampler, DrawsTheIndicesThatPyTorchDraws) {
  const auto recorded =
      nlohmann::json::parse(read_file(test::source_dir() + "/tests/data/reference/weighted_sampler.json"));
  ASSERT_EQ(recorded["cases"].size(), 5U);
  for (const auto& entry : recorded["cases"]) {
    const WeightedRandomSampler sampler(at::tensor(entry["weights"].get<std::vector<double>>(), at::kDouble),
                                        entry["num_samples"], entry["replacement"]);
    EXPECT_EQ(numbers(sampler.order(entry["seed"], entry["epoch"])), entry["indices"].get<std::vector<int64_t>>());
  }
}

// With 6 degrees of freedom, chi-square exceeds 22.46 in one of 1000 samples.
TEST(WeightedRandomSampler, DrawsInProportionToItsWeights) {
  const std::vector<double> weights = {1, 2, 3, 0, 4, 10, 0.5, 2.5};
  const WeightedRandomSampler many(at::tensor(weights, at::kDouble), 200'000);
  EXPECT_LT(chi_square(many.order(3, 0), weights), 22.46);
  EXPECT_FALSE(at::equal(many.order(3, 0), many.order(3, 1)));
  EXPECT_TRUE(at::equal(many.order(3, 1), many.order(3, 1)));
}

TEST(WeightedRandomSampler, DrawsEachAtMostOnceWithoutReplacementAndTheFirstByWeight) {
  const std::vector<double> weights = {1, 2, 3, 0, 4, 10, 0.5, 2.5};
  const WeightedRandomSampler sampler(at::tensor(weights, at::kDouble), 5, /*replacement=*/false);
  std::vector<at::Tensor> first;
  for (int64_t epoch = 0; epoch < 20'000; ++epoch) {
    const at::Tensor order = sampler.order(3, epoch);
    const auto drawn = numbers(order);
    ASSERT_EQ(std::set<int64_t>(drawn.begin(), drawn.end()).size(), 5U);
    first.push_back(order.narrow(0, 0, 1));
  }
  EXPECT_LT(chi_square(at::cat(first), weights), 22.46);
}

TEST(WeightedRandomSampler, GivesRanksDisjointPartsOfADraw) {
  const auto data = std::make_shared<TensorDataset>(std::vector<at::Tensor>{at::arange(40)});
  std::multiset<int64_t> seen;
  for (int64_t rank = 0; rank < 4; ++rank) {
    DataLoader loader(data, {.batch_size = 2},
                      std::make_shared<WeightedRandomSampler>(at::arange(40).add(1), 24, /*replacement=*/false));
    loader.shard(rank, 4, /*padded=*/true);
    loader.start(0);
    for (Batch batch; loader.next(batch);) {
      for (const int64_t index : numbers(batch[0])) seen.insert(index);
    }
  }
  EXPECT_EQ(seen.size(), 24U);
  EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), 24U);
}

TEST(WeightedRandomSampler, DrawsEachClassEquallyOftenWithBalancedWeights) {
  const at::Tensor labels = at::full({1000}, 2, at::kLong);  // 10, 90 and 900 samples; class 3 has none
  labels.narrow(0, 0, 10).fill_(0);
  labels.narrow(0, 10, 90).fill_(1);
  const at::Tensor weights = balanced_weights(labels);
  EXPECT_DOUBLE_EQ(weights[0].item<double>(), 0.1);
  EXPECT_DOUBLE_EQ(weights[50].item<double>(), 1.0 / 90);
  const at::Tensor drawn = labels.index_select(0, WeightedRandomSampler(weights, 30'000).order(1, 0));
  EXPECT_LT(chi_square(drawn, {1, 1, 1}), 13.82);  // one in 1000, 2 degrees of freedom
}

TEST(WeightedRandomSampler, RefusesWeightsItCannotDrawBy) {
  const auto message = [](const at::Tensor& weights, int64_t count, bool replacement) {
    return error_of<ConfigError>([&] { WeightedRandomSampler(weights, count, replacement); });
  };
  EXPECT_TRUE(holds(message(at::tensor({1.0, -1.0}), 2, true), {"WeightedRandomSampler", ">= 0", "-1"}));
  EXPECT_TRUE(holds(message(at::tensor({0.0, 0.0}), 2, true), {"not all 0"}));
  EXPECT_TRUE(holds(message(at::full({2}, std::numeric_limits<double>::infinity()), 2, true), {"finite"}));
  EXPECT_TRUE(holds(message({}, 2, true), {"tensor (n)"}));
  EXPECT_TRUE(holds(message(at::tensor({1.0, 1.0}), 0, true), {"num_samples", "got 0"}));
  EXPECT_TRUE(holds(message(at::tensor({1.0, 0.0, 1.0}), 3, false), {"3 samples", "2 have a weight above 0"}));
  EXPECT_TRUE(holds(error_of<DataError>([] { (void)balanced_weights(at::tensor({1.5, 0.5})); }), {"int64", "classes"}));
  EXPECT_TRUE(holds(error_of<DataError>([] { (void)balanced_weights(at::tensor({0, -1}, at::kLong)); }), {"from 0"}));
}

}  // namespace
}  // namespace levin::weighted_sampler_test
