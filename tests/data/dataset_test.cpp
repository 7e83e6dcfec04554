#include "levin/data/loading/dataset.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "levin/core/options/error.h"
#include "levin/data/loading/dataloader.h"
#include "support/error_text.h"

namespace levin::dataset_test {
namespace {

using test::error_of;
using test::holds;

TEST(TensorDataset, GivesSamplesGathersAndViews) {
  const at::Tensor x = at::arange(12).view({6, 2});
  const TensorDataset data({x, at::arange(6)});
  EXPECT_EQ(data.size(), 6);
  EXPECT_TRUE(at::equal(data.get(4)[0], x[4]));
  const Batch gathered = data.get_batch(at::tensor({5, 0, 5}, at::kLong));
  EXPECT_TRUE(at::equal(gathered[1], at::tensor({5, 0, 5}, at::kLong)));
  const Batch view = data.get_range(2, 3);
  EXPECT_TRUE(at::equal(view[1], at::tensor({2, 3, 4}, at::kLong)));
  EXPECT_EQ(view[0].const_data_ptr(), x[2].const_data_ptr());  // no copy
}

TEST(TensorDataset, RefusesTensorsOfUnequalLengthAndNone) {
  EXPECT_TRUE(holds(error_of<DataError>([] {
                      TensorDataset({at::zeros({6, 2}), at::zeros({5})});
                    }),
                    {"tensor 1 holds 5", "tensor 0 holds 6"}));
  EXPECT_TRUE(holds(error_of<DataError>([] { TensorDataset({at::zeros({})}); }), {"tensor 0", "dimension"}));
  EXPECT_TRUE(holds(error_of<DataError>([] { TensorDataset(std::vector<at::Tensor>{}); }), {"no tensor"}));
}

TEST(TensorDataset, IsEmptyUntilItIsAssigned) {
  TensorDataset data;
  EXPECT_EQ(data.size(), 0);
  EXPECT_TRUE(holds(error_of<DataError>([&] { DataLoader(data, {.batch_size = 2}); }), {"data set is empty"}));
  data = {at::zeros({6, 2}), at::zeros({6})};
  EXPECT_EQ(data.size(), 6);
  EXPECT_EQ(data.get_range(2, 3)[0].size(0), 3);
}

TEST(Dataset, ReportsWhatToOverrideIfItPromisesBatchesAndHasNone) {
  struct Promises : Dataset {
    int64_t size() const override { return 1; }
    Batch get(int64_t) const override { return {}; }
    bool has_get_batch() const override { return true; }
  };
  EXPECT_TRUE(holds(error_of<Error>([] { (void)Promises().get_range(0, 1); }), {"override", "get_batch"}));
}

}  // namespace
}  // namespace levin::dataset_test
