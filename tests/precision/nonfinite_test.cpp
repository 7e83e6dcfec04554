// What counts as inf or nan, for every type, position and layout.
#include "levin/precision/nonfinite.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <vector>

namespace levin::nonfinite_test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// The largest and smallest numbers of a type, and zeros.
at::Tensor extremes(at::ScalarType dtype) {
  at::Tensor numbers;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "extremes", [&] {
    using Limits = std::numeric_limits<scalar_t>;
    numbers = torch::zeros({7}, dtype);
    const std::vector<scalar_t> values = {Limits::max(),  Limits::lowest(), Limits::denorm_min(), Limits::min(),
                                          scalar_t(-0.0), scalar_t(0),      scalar_t(1)};
    std::copy(values.begin(), values.end(), numbers.mutable_data_ptr<scalar_t>());
  });
  return numbers;
}

TEST(Nonfinite, IsFoundAtEveryPositionInEveryType) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const at::Tensor finite = extremes(dtype);
    EXPECT_FALSE(has_nonfinite(finite)) << dtype;
    for (int64_t position = 0; position < finite.numel(); ++position) {
      for (const double bad : {kInf, -kInf, std::nan("")}) {
        at::Tensor numbers = finite.clone();
        numbers[position] = bad;
        EXPECT_TRUE(has_nonfinite(numbers)) << dtype << " " << position << " " << bad;
      }
    }
  }
}

TEST(Nonfinite, IsFoundInComplexNumbersAndNeverInIntegers) {
  at::Tensor numbers = torch::ones({3}, at::kComplexFloat);
  EXPECT_FALSE(has_nonfinite(numbers));
  torch::view_as_real(numbers)[2][1] = kInf;
  EXPECT_TRUE(has_nonfinite(numbers));
  EXPECT_FALSE(has_nonfinite(torch::full({3}, std::numeric_limits<int64_t>::max(), at::kLong)));
  EXPECT_FALSE(has_nonfinite(torch::empty({0})));
}

TEST(Nonfinite, IsFoundByEachOfSeveralThreads) {
  const int64_t count = (int64_t{1} << 18) + 3;
  at::Tensor numbers = torch::ones({count});
  EXPECT_FALSE(has_nonfinite(numbers));
  for (const int64_t position : {int64_t{0}, count / 2 - 1, count / 2, count / 2 + 1, count - 1}) {
    numbers[position] = kInf;
    EXPECT_TRUE(has_nonfinite(numbers)) << position;
    numbers[position] = 1;
  }
}

TEST(Nonfinite, NeighboursThatAreNotInTheTensorDoNotCount) {
  at::Tensor numbers = torch::ones({9});
  numbers[8] = kInf;
  EXPECT_FALSE(has_nonfinite(numbers.narrow(0, 0, 8)));
  EXPECT_TRUE(has_nonfinite(numbers.narrow(0, 1, 8)));
  at::Tensor rows = torch::ones({4, 4});
  rows.select(1, 2).fill_(kInf);
  EXPECT_FALSE(has_nonfinite(rows.select(1, 1)));
  EXPECT_TRUE(has_nonfinite(rows.select(1, 2)));
  EXPECT_TRUE(has_nonfinite(rows.t()));
}

}  // namespace
}  // namespace levin::nonfinite_test
