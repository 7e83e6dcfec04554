#include "levin/data/batch.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "levin/core/options/error.h"
#include "support/error_text.h"

namespace levin::batch_test {
namespace {

using test::error_of;
using test::holds;

TEST(Batch, CountsSamplesAlongTheFirstDimension) {
  EXPECT_EQ(Batch{}.size(), 0);
  EXPECT_TRUE(Batch{}.empty());
  EXPECT_EQ(Batch{at::zeros({})}.size(), 1);
  const Batch batch = {at::zeros({5, 2}), at::zeros({5})};
  EXPECT_EQ(batch.size(), 5);
  EXPECT_EQ(batch.count(), 2U);
}

TEST(Batch, UnpacksAllItsTensors) {
  const Batch batch = {at::zeros({5, 2}), at::zeros({5})};
  const auto [x, y] = batch.unpack<2>();
  EXPECT_TRUE(x.is_same(batch[0]));
  EXPECT_TRUE(y.is_same(batch[1]));
}

TEST(Batch, NamesBothNumbersWhenUnpackedWrongly) {
  const Batch batch = {at::zeros({5, 2}), at::zeros({5})};
  EXPECT_TRUE(holds(error_of<Error>([&] { (void)batch.unpack<3>(); }), {"unpack<3>", "holds 2 tensors"}));
  EXPECT_TRUE(holds(error_of<Error>([&] { (void)batch[2]; }), {"no tensor 2", "holds 2"}));
}

}  // namespace
}  // namespace levin::batch_test
