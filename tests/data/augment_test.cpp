#include "levin/data/sets/augment.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "levin/core/options/error.h"
#include "levin/data/loading/dataloader.h"
#include "levin/data/sets/mnist.h"
#include "support/error_text.h"

namespace levin::augment_test {
namespace {

using test::error_of;
using test::holds;

at::Tensor images(int64_t count) {  // (count, 2, 3, 4): all pixels differ
  return at::arange(count * 24, at::kFloat).view({count, 2, 3, 4});
}

TEST(ShiftAndFlip, MovesMirrorsAndFills) {
  const at::Tensor x = images(3);
  const at::Tensor result = shift_and_flip(x, at::tensor({0L, 1L, -2L}), at::tensor({0L, -1L, 3L}),
                                           at::tensor({0L, 0L, 1L}).to(at::kBool), -9);
  EXPECT_TRUE(at::equal(result[0], x[0]));
  for (int64_t b = 1; b < 3; ++b) {
    for (int64_t c = 0; c < 2; ++c) {
      for (int64_t i = 0; i < 3; ++i) {
        for (int64_t j = 0; j < 4; ++j) {
          const int64_t row = b == 1 ? i - 1 : i + 2;
          const int64_t column = b == 1 ? j + 1 : 3 - (j - 3);  // the second is mirrored first
          const bool inside = row >= 0 && row < 3 && column >= 0 && column < 4;
          const float expected = inside ? x[b][c][row][column].item<float>() : -9.0F;
          EXPECT_EQ(result[b][c][i][j].item<float>(), expected) << b << c << i << j;
        }
      }
    }
  }
}

std::vector<Batch> pass(int64_t num_workers, int64_t epoch, int64_t first_batch = 0) {
  const auto data = std::make_shared<TensorDataset>(std::vector<at::Tensor>{images(100), at::arange(100)});
  DataLoader loader(
      std::make_shared<AugmentedImages>(data, AugmentOptions{.crop_padding = 1, .flip = true, .fill = -1}),
      {.batch_size = 16, .shuffle = true, .num_workers = num_workers, .seed = 5});
  std::vector<Batch> all;
  loader.start(epoch, first_batch);
  for (Batch batch; loader.next(batch);) all.push_back(batch);
  return all;
}

TEST(AugmentedImages, DependOnSeedEpochAndBatchAlone) {
  const auto whole = pass(0, 2), rest = pass(2, 2, 4), other = pass(0, 3);
  ASSERT_EQ(whole.size(), 7U);
  ASSERT_EQ(rest.size(), 3U);
  for (size_t i = 0; i < rest.size(); ++i) {
    EXPECT_TRUE(at::equal(rest[i][0], whole[i + 4][0]));
    EXPECT_TRUE(at::equal(rest[i][1], whole[i + 4][1]));
  }
  EXPECT_FALSE(at::equal(other[0][0], whole[0][0]));
}

// Each image is one of 3 x 3 places, mirrored or not, of the image that its label names; all 18 come up.
TEST(AugmentedImages, AreTheImagesOfTheirLabelsMovedAndMirrored) {
  std::set<int64_t> seen;
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    for (const Batch& batch : pass(0, epoch)) {
      for (int64_t i = 0; i < batch.size(); ++i) {
        const at::Tensor original = images(100)[batch[1][i].item<int64_t>()].unsqueeze(0);
        int64_t matches = 0;
        for (int64_t way = 0; way < 18; ++way) {
          const at::Tensor guess = shift_and_flip(original, at::tensor({way % 3 - 1}), at::tensor({way / 3 % 3 - 1}),
                                                  at::tensor({way / 9}).to(at::kBool), -1);
          if (!at::equal(guess[0], batch[0][i])) continue;
          ++matches;
          seen.insert(way);
        }
        EXPECT_EQ(matches, 1);
      }
    }
  }
  EXPECT_EQ(seen.size(), 18U);
}

TEST(FashionMnist, AugmentsTheTrainingImagesAlone) {
  if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist")) GTEST_SKIP() << "no dataset-fashion-mnist";
  FashionMnist plain({.shuffle = false}), augmented({.shuffle = false, .crop_padding = 2, .flip = true});
  for (FashionMnist* data : {&plain, &augmented}) data->setup(Stage::fit);
  const auto first = [](Loader& loader) {
    loader.start(0);
    Batch batch;
    EXPECT_TRUE(loader.next(batch));
    return batch;
  };
  const Batch a = first(*plain.train_dataloader()), b = first(*augmented.train_dataloader());
  EXPECT_FALSE(at::equal(a[0], b[0]));
  EXPECT_TRUE(at::equal(a[1], b[1]));
  EXPECT_EQ(b[0].min().item<float>(), a[0].min().item<float>()) << "what comes in is black";
  EXPECT_TRUE(at::equal(first(*plain.val_dataloader()[0])[0], first(*augmented.val_dataloader()[0])[0]));
  EXPECT_TRUE(holds(error_of<ConfigError>([] { FashionMnist({.flatten = true, .flip = true}); }),
                    {"FashionMnistOptions.flatten", "crop_padding or flip"}));
}

TEST(FashionMnist, NamesPredictedClasses) {
  const FashionMnist data;
  EXPECT_EQ(data.prediction_text(at::tensor({9L, 0L})), (std::vector<std::string>{"Ankle boot", "T-shirt/top"}));
  EXPECT_TRUE(data.prediction_text(at::zeros({2, 10})).empty());
  EXPECT_EQ(data.label_names(), FashionMnist::class_names()) << "for prediction files";
}

}  // namespace
}  // namespace levin::augment_test
