// The checkpoint of a run's end, which a run with auto_resume keeps where its best one is older.
#include <gtest/gtest.h>

#include <csignal>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/callbacks/model_checkpoint.h"
#include "levin/callbacks/on_exception_checkpoint.h"
#include "support/error_text.h"
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

// Stopped, or failed, after the last step: the checkpoint that the run continues from goes when it ends.
TEST(CheckpointOfTheEnd, IsWrittenByARunThatContinuesFromACheckpointThatGoes) {
  for (const bool by_exception : {false, true}) {
    const TemporaryFolder folder;
    const auto train = [&](bool disturbed) {
      TinyModule module;
      module.on_training_step = [&](int64_t) {
        if (disturbed && !by_exception && module.global_step() == 11) std::raise(SIGINT);
      };
      Callbacks callbacks = {
          std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{.dirpath = folder.path(), .every_n_train_steps = 5}),
          std::make_shared<OnExceptionCheckpoint>(OnExceptionCheckpointOptions{.dirpath = folder / "exception"})};
      LambdaHooks hooks;
      hooks.on_train_epoch_end = [&](Trainer& trainer, LightningModule&) {
        if (disturbed && by_exception && trainer.global_step() == 12) throw Error("power cut");
      };
      callbacks.push_back(std::make_shared<LambdaCallback>(hooks));
      TrainerOptions options = quiet(2, std::move(callbacks), folder.path());
      options.auto_resume = true;
      Trainer trainer(std::move(options));
      return error_of([&] { trainer.fit(module, tiny_loader(24)); });
    };
    EXPECT_NE(train(true), "");
    EXPECT_EQ(train(false), "");
    EXPECT_EQ(folder.names(), (Names{"epoch=1-step=10.ckpt", "exception", "last.ckpt"})) << by_exception;
  }
}

}  // namespace
}  // namespace levin::checkpoint_of_end_test
