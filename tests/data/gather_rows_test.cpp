#include "levin/data/loading/gather_rows.h"

#include <ATen/ops/_neg_view.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "levin/core/options/error.h"
#include "support/error_text.h"

namespace levin::gather_rows_test {
namespace {

using test::error_of;
using test::holds;

void expect_as_index_select(const at::Tensor& tensor, const at::Tensor& indices) {
  const at::Tensor expected = at::index_select(tensor, 0, indices);
  const at::Tensor gathered = gather_rows(tensor, indices);
  EXPECT_EQ(gathered.sizes(), expected.sizes());
  EXPECT_EQ(gathered.scalar_type(), expected.scalar_type());
  EXPECT_TRUE(at::equal(gathered, expected));
}

TEST(GatherRows, GivesWhatIndexSelectGives) {
  for (const auto type : {at::kFloat, at::kDouble, at::kByte, at::kLong, at::kHalf, at::kBool}) {
    for (const auto& shape : std::vector<std::vector<int64_t>>{{50}, {50, 3}, {50, 3, 28, 28}}) {
      const at::Tensor tensor = (at::rand(shape) * 9).to(type);
      for (const int64_t count : {0, 1, 7, 400}) expect_as_index_select(tensor, at::randint(50, {count}, at::kLong));
    }
  }
}

TEST(GatherRows, TakesTensorsThatAreNotContiguousToo) {
  const at::Tensor tensor = at::rand({6, 8});
  const at::Tensor indices = at::tensor({3, 0, 3}, at::kLong);
  expect_as_index_select(tensor.t(), indices);
  expect_as_index_select(tensor.narrow(1, 2, 4), indices);
  expect_as_index_select(tensor, at::arange(6, at::kLong).slice(0, 0, 6, 2));
  expect_as_index_select(at::rand({6, 0}), indices);
  expect_as_index_select(at::_neg_view(tensor), indices);  // its memory holds the numbers with the other sign
}

TEST(GatherRows, RefusesAnIndexOutsideOfTheData) {
  for (const int64_t wrong : {6, -1}) {
    EXPECT_TRUE(holds(error_of<DataError>([&] {
                        (void)gather_rows(at::rand({6, 2}), at::tensor({0, static_cast<int>(wrong)}, at::kLong));
                      }),
                      {"index " + std::to_string(wrong), "6 rows"}));
  }
}

}  // namespace
}  // namespace levin::gather_rows_test
