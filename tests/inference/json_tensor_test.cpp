#include "levin/inference/json_tensor.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "levin/core/options/error.h"
#include "support/error_text.h"

namespace levin::json_tensor_test {
namespace {

using test::error_of;
using test::holds;

std::string refused(const std::string& text, at::ScalarType dtype = at::kFloat) {
  return error_of<DataError>([&] { (void)tensor_from_json(text, dtype); });
}

TEST(JsonTensor, NestedListsBecomeATensorOfTheirShape) {
  const at::Tensor matrix = tensor_from_json(" [[0.5, 1, -2e-3],\n [0, 3e2, 1.25]] ");
  EXPECT_TRUE(matrix.equal(torch::tensor({{0.5F, 1.0F, -0.002F}, {0.0F, 300.0F, 1.25F}})));
  EXPECT_TRUE(tensor_from_json("7.5").equal(torch::tensor(7.5F)));
  EXPECT_EQ(tensor_from_json("[]").sizes(), at::IntArrayRef({0}));
  EXPECT_EQ(tensor_from_json("[[], []]").sizes(), at::IntArrayRef({2, 0}));
  EXPECT_TRUE(
      tensor_from_json("[9007199254740993, -5]", at::kLong).equal(torch::tensor({9007199254740993, int64_t{-5}})));
  EXPECT_TRUE(tensor_from_json("[true, 0, 1]", at::kBool).equal(torch::tensor({true, false, true})));
  EXPECT_EQ(tensor_from_json("[0.1]", at::kDouble).item<double>(), 0.1);
  EXPECT_EQ(tensor_from_json("[1, 255]", at::kByte).scalar_type(), at::kByte);
}

TEST(JsonTensor, WhatIsNotATensorIsRefusedWithItsLocation) {
  EXPECT_TRUE(holds(refused("[1, 2"), {"JSON: ", "not JSON at byte"}));
  EXPECT_TRUE(holds(refused(""), {"not JSON"}));
  EXPECT_TRUE(holds(refused("{\"a\": 1}"), {"expected a number, got an object"}));
  EXPECT_TRUE(holds(refused("[[1, 2], [3]]"), {"JSON at [1]: ", "expected a list of 2", "got a list of 1"}));
  EXPECT_TRUE(holds(refused("[[1, 2], 3]"), {"at [1]: ", "expected a list of 2", "got 3"}));
  EXPECT_TRUE(holds(refused("[1, [2]]"), {"at [1]: ", "expected a number, got a list of 1"}));
  EXPECT_TRUE(holds(refused("[[0, null]]"), {"at [0][1]: ", "got null"}));
  EXPECT_TRUE(holds(refused("[\"1\"]"), {"at [0]: ", "got a string"}));
  EXPECT_TRUE(holds(refused("[true]"), {"at [0]: ", "got a boolean"}));
  EXPECT_TRUE(holds(refused("[1, 1e39]"), {"at [1]: ", "more than Float can hold"}));
  EXPECT_TRUE(holds(refused("[70000]", at::kHalf), {"more than Half can hold"}));
  EXPECT_TRUE(holds(refused("[1.5]", at::kLong), {"at [0]: ", "a whole number", "1.5"}));
  EXPECT_TRUE(holds(refused("[300]", at::kByte), {"from 0 to 255", "300"}));
  EXPECT_TRUE(holds(refused("[18446744073709551615]", at::kLong), {"a whole number"}));
  EXPECT_TRUE(holds(refused(std::string(100, '[')), {"deeper"}));
  EXPECT_TRUE(
      holds(error_of([] { (void)tensor_from_json("[1]", at::kComplexFloat); }), {"ComplexFloat is not supported"}));
}

TEST(JsonTensor, NumbersAreWrittenWithTheDigitsThatReadBack) {
  EXPECT_EQ(tensor_to_json(torch::tensor({{0.1F, 1.0F}, {-2.5F, 1e-20F}})), "[[0.1,1],[-2.5,1e-20]]");
  EXPECT_EQ(tensor_to_json(torch::tensor(0.1, at::kDouble)), "0.1");
  EXPECT_EQ(tensor_to_json(torch::tensor({1, -7})), "[1,-7]");
  EXPECT_EQ(tensor_to_json(torch::tensor({true, false})), "[true,false]");
  EXPECT_EQ(tensor_to_json(torch::zeros({2, 0})), "[[],[]]");
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(tensor_to_json(torch::tensor({infinity, std::nanf(""), 1.0F})), "[null,null,1]");
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    torch::manual_seed(1);
    const at::Tensor numbers = (torch::randn({7, 5, 3}, at::kDouble) * 1e3).to(type);
    EXPECT_TRUE(tensor_from_json(tensor_to_json(numbers), type).equal(numbers)) << c10::toString(type);
  }
  const at::Tensor turned = torch::arange(6).view({2, 3}).t();
  EXPECT_EQ(tensor_to_json(turned), "[[0,3],[1,4],[2,5]]");
}

TEST(JsonTensor, WhatJsonCannotWriteIsRefused) {
  EXPECT_TRUE(holds(error_of<Error>([] { (void)tensor_to_json(at::Tensor()); }), {"undefined"}));
  EXPECT_TRUE(holds(error_of<Error>([] { (void)tensor_to_json(torch::zeros({2}, at::kComplexFloat)); }),
                    {"ComplexFloat", "(2)"}));
}

}  // namespace
}  // namespace levin::json_tensor_test
