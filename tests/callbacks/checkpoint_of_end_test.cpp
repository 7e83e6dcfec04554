// The checkpoint of a run's end, which a run with auto_resume keeps where its best one is older.
#include <gtest/gtest.h>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/model_checkpoint.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::checkpoint_of_end_test {
namespace {

using namespace test;
using Names = std::vector<std::string>;

struct Outcome {
  int64_t batches = 0;  // trained by this fit
  at::Tensor weight = {};
};

struct Wanted {
  std::vector<double> metric = {};  // "v" of each epoch
  ModelCheckpointOptions options = {.filename = "best", .monitor = "v"};
  bool auto_resume = true;
  bool keeps_newest_too = false;  // a second callback
};

Outcome fit(const TemporaryFolder& folder, const Wanted& setup, int64_t epochs) {
  Callbacks callbacks;
  const auto add = [&](ModelCheckpointOptions options) {
    options.dirpath = folder.path();
    callbacks.push_back(std::make_shared<ModelCheckpoint>(std::move(options)));
  };
  add(setup.options);
  if (setup.keeps_newest_too) add({.filename = "newest"});
  Outcome result;
  TinyModule module;
  module.table = setup.metric;
  module.on_training_step = [&](int64_t) { ++result.batches; };
  TrainerOptions options = quiet(epochs, std::move(callbacks));
  options.auto_resume = setup.auto_resume;
  Trainer trainer(std::move(options));
  trainer.fit(module, tiny_loader(24), tiny_loader(16));
  result.weight = module.layer->weight.detach().clone();
  return result;
}

TEST(CheckpointOfTheEnd, AFinishedRunTrainsNothingMoreAndHasItsWeights) {
  const TemporaryFolder folder;
  const Wanted setup{.metric = {3, 1, 2, 2}};
  const Outcome first = fit(folder, setup, 4);
  EXPECT_EQ(first.batches, 4 * 6);
  EXPECT_EQ(folder.names(), (Names{"best.ckpt", "last.ckpt"}));
  for (int again = 0; again < 2; ++again) {
    const Outcome second = fit(folder, setup, 4);
    EXPECT_EQ(second.batches, 0);
    EXPECT_TRUE(torch::equal(second.weight, first.weight));
    EXPECT_EQ(folder.names(), (Names{"best.ckpt", "last.ckpt"}));
  }
}

TEST(CheckpointOfTheEnd, MoreEpochsContinueFromItAndANewerCheckpointReplacesIt) {
  const TemporaryFolder folder, straight;
  const Wanted setup{.metric = {3, 1, 2, 2, 0.5, 2}};
  (void)fit(folder, setup, 4);
  const Outcome better = fit(folder, setup, 5);
  EXPECT_EQ(better.batches, 6);
  EXPECT_EQ(folder.names(), Names{"best.ckpt"});  // of the end itself
  const Outcome end = fit(folder, setup, 6);
  EXPECT_EQ(end.batches, 6);
  EXPECT_EQ(folder.names(), (Names{"best.ckpt", "last.ckpt"}));
  EXPECT_TRUE(torch::equal(end.weight, fit(straight, setup, 6).weight));
}

TEST(CheckpointOfTheEnd, IsNotWrittenWhereTheNewestIsOfTheEnd) {
  const TemporaryFolder improving, two;
  (void)fit(improving, {.metric = {3, 2, 1}}, 3);
  EXPECT_EQ(improving.names(), Names{"best.ckpt"});
  (void)fit(two, {.metric = {1, 2, 3}, .keeps_newest_too = true}, 3);
  EXPECT_EQ(two.names(), (Names{"best.ckpt", "newest.ckpt"}));
}

TEST(CheckpointOfTheEnd, IsNotWrittenWhereNobodyWouldContinueFromIt) {
  Wanted setup{.metric = {1, 2, 3}};
  setup.auto_resume = false;
  const TemporaryFolder plain, weights;
  (void)fit(plain, setup, 3);
  EXPECT_EQ(plain.names(), Names{"best.ckpt"});
  setup.auto_resume = true;
  setup.options.save_weights_only = true;
  (void)fit(weights, setup, 3);
  EXPECT_EQ(weights.names(), Names{"best.ckpt"});
}

}  // namespace
}  // namespace levin::checkpoint_of_end_test
