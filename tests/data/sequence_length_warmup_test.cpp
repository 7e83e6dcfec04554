#include "levin/data/loading/sequence_length_warmup.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <memory>

#include "levin/core/options/error.h"
#include "levin/data/loading/dataloader.h"
#include "levin/data/loading/replay_loader.h"
#include "levin/data/sets/text.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::sequence_length_warmup_test {
namespace {

using test::error_of;
using test::holds;

// (40, 16) and, of the same batch, (40): ten batches of four.
std::shared_ptr<DataLoader> rows(int64_t workers = 0) {
  return std::make_shared<DataLoader>(
      std::make_shared<TensorDataset>(std::vector<at::Tensor>{at::arange(40 * 16).view({40, 16}), at::arange(40)}),
      DataLoaderOptions{.batch_size = 4, .shuffle = true, .num_workers = workers});
}

std::vector<int64_t> lengths(Loader& loader, int64_t epoch, int64_t first_batch = 0) {
  std::vector<int64_t> all;
  loader.start(epoch, first_batch);
  for (Batch batch; loader.next(batch);) all.push_back(batch[0].size(1));
  return all;
}

TEST(SequenceLengthWarmup, GrowsLinearlyInMultiplesToTheFullLength) {
  const SequenceLengthWarmupOptions options{.start_length = 8, .batches = 100, .multiple_of = 8};
  EXPECT_EQ(warmup_length(options, 128, 0), 8);
  EXPECT_EQ(warmup_length(options, 128, 50), 64);  // 68 without rounding
  EXPECT_EQ(warmup_length(options, 128, 99), 120);
  EXPECT_EQ(warmup_length(options, 128, 100), 128);
  EXPECT_EQ(warmup_length(options, 128, 100000), 128);
  EXPECT_EQ(warmup_length({.start_length = 5, .batches = 10, .multiple_of = 8}, 100, 0), 5);
  EXPECT_EQ(warmup_length({.start_length = 5, .batches = 10, .multiple_of = 8}, 100, 1), 8);
  EXPECT_EQ(warmup_length({}, 100, 0), 100);
}

TEST(SequenceLengthWarmup, CutsBatchesAndLeavesWhatHasNoLength) {
  const auto whole = rows();
  SequenceLengthWarmup loader(rows(), 16, {.start_length = 2, .batches = 14, .multiple_of = 2});
  whole->start(0);
  loader.start(0);
  Batch full, cut;
  for (int64_t b = 0; whole->next(full); ++b) {
    ASSERT_TRUE(loader.next(cut));
    EXPECT_TRUE(at::equal(cut[0], full[0].narrow(1, 0, (2 + b) / 2 * 2)));
    EXPECT_TRUE(at::equal(cut[1], full[1]));
  }
  EXPECT_FALSE(loader.next(cut));
  EXPECT_EQ(loader.num_batches(), 10);
  EXPECT_EQ(loader.batch_size(), 4);
}

TEST(SequenceLengthWarmup, ContinuesAcrossEpochsAndInsideOne) {
  for (const int64_t workers : {0, 2}) {
    SequenceLengthWarmup loader(rows(workers), 16, {.start_length = 2, .batches = 14, .multiple_of = 2});
    EXPECT_EQ(lengths(loader, 0), (std::vector<int64_t>{2, 2, 4, 4, 6, 6, 8, 8, 10, 10}));
    EXPECT_EQ(lengths(loader, 1), (std::vector<int64_t>{12, 12, 14, 14, 16, 16, 16, 16, 16, 16}));
    EXPECT_EQ(lengths(loader, 0, 7), (std::vector<int64_t>{8, 10, 10}));
  }
}

TEST(SequenceLengthWarmup, IsAnOptionOfTextFile) {
  const test::TemporaryFolder folder;
  TextFile data({.path = folder.write("t.txt", std::string(1000, 'x')),
                 .block_size = 16,
                 .batch_size = 4,
                 .length_warmup = {.start_length = 8, .batches = 10}});
  data.setup(Stage::fit);
  const auto loader = data.train_dataloader();
  loader->start(0);
  Batch batch;
  ASSERT_TRUE(loader->next(batch));
  EXPECT_EQ(batch[0].size(1), 8);
  EXPECT_TRUE(at::equal(batch[0].narrow(1, 1, 7), batch[1].narrow(1, 0, 7)));
  const auto val = data.val_dataloader()[0];
  val->start(0);
  ASSERT_TRUE(val->next(batch));
  EXPECT_EQ(batch[0].size(1), 16);
}

TEST(SequenceLengthWarmup, ContinuesAReplayLoaderFromItsState) {
  const auto made = [] {
    auto buffer = std::make_shared<ReplayBuffer>(ReplayBufferOptions{.capacity = 64, .seed = 3});
    buffer->add_many({at::arange(40 * 16).view({40, 16})});
    return SequenceLengthWarmup(
        std::make_shared<ReplayLoader>(buffer, ReplayLoaderOptions{.batch_size = 4, .batches_per_epoch = 10}), 16,
        {.start_length = 2, .batches = 14, .multiple_of = 2});
  };
  SequenceLengthWarmup whole = made(), resumed = made();
  EXPECT_FALSE(whole.may_be_read_ahead());
  Batch batch, other;
  whole.start(0);
  for (int k = 0; k < 3; ++k) ASSERT_TRUE(whole.next(batch));
  State state = whole.state_dict();
  whole.add_to_checkpoint(state);
  resumed.load_state_dict(state);
  resumed.start(0, 3);
  for (int k = 3; k < 10; ++k) {
    ASSERT_TRUE(whole.next(batch));
    ASSERT_TRUE(resumed.next(other));
    EXPECT_TRUE(at::equal(batch[0], other[0]));
  }
}

TEST(SequenceLengthWarmup, RefusesWhatCannotGrow) {
  EXPECT_TRUE(holds(error_of<ConfigError>([] { SequenceLengthWarmup(rows(), 16, {.start_length = 17, .batches = 1}); }),
                    {"start_length", "16", "got 17"}));
  EXPECT_TRUE(holds(error_of<ConfigError>([] { SequenceLengthWarmup(nullptr, 16, {}); }), {"number of batches"}));
}

}  // namespace
}  // namespace levin::sequence_length_warmup_test
