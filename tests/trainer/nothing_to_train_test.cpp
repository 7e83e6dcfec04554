// Fits and evaluations whose limits leave nothing to do: what they report, and what still works around them.
#include <gtest/gtest.h>

#include <functional>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/sharded_checkpoint.h"
#include "levin/optim/cosine_schedulers.h"
#include "levin/optim/cyclic_schedulers.h"
#include "support/captured_console.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::nothing_to_train_test {
namespace {

using namespace test;

// With the progress bar off, too: a program that calls fit once per part of its data would train the first part alone.
TEST(NothingToTrain, IsReportedEachTime) {
  Trainer trainer(quiet(1, {}));
  TinyModule module;
  trainer.fit(module, tiny_loader(8));
  const CapturedConsole console;
  for (int again = 0; again < 2; ++again) trainer.fit(module, tiny_loader(8));
  const std::string limit = "Nothing to train: max_epochs (1) is reached. It counts over all fits of this Trainer: ";
  ASSERT_EQ(console.lines().size(), 2U) << console.text();
  for (const auto& line : console.lines()) {
    EXPECT_TRUE(line.starts_with(limit) && line.ends_with("reload_dataloaders_every_n_epochs: 1.")) << line;
  }
}

TEST(NothingToTrain, NamesTheLimit) {
  const auto text = [](const std::function<void(TrainerOptions&)>& change) {
    const CapturedConsole console;
    TrainerOptions options = quiet(3, {});
    change(options);
    TinyModule module;
    Trainer(options).fit(module, tiny_loader(8), tiny_loader(8));
    return console.text();
  };
  EXPECT_EQ(text([](auto& o) { o.max_epochs = 0; }), "Nothing to train: max_epochs (0) is reached.\n");
  EXPECT_EQ(text([](auto& o) { o.max_steps = 0; }), "Nothing to train: max_steps (0) is reached.\n");
  EXPECT_EQ(text([](auto& o) { o.limit_train_batches = 0.0; }), "Nothing to train: limit_train_batches is 0.\n");
  const auto stop = [](Trainer& trainer, LightningModule&) { trainer.request_stop("not today"); };
  EXPECT_EQ(text([&](auto& o) { o.callbacks = {LambdaCallback({.on_fit_start = stop})}; }),
            "Nothing to train: not today.\n");
}

TEST(NothingToTrain, NorToEvaluateIsReported) {
  TrainerOptions options = quiet(1, {});
  options.limit_val_batches = options.limit_test_batches = options.limit_predict_batches = int64_t{0};
  Trainer trainer(options);
  TinyModule module;
  const CapturedConsole console;
  EXPECT_TRUE(trainer.validate(module, tiny_loader(8)).empty());
  EXPECT_TRUE(trainer.test(module, tiny_loader(8)).empty());
  EXPECT_TRUE(trainer.predict(module, tiny_loader(8)).empty());
  EXPECT_EQ(console.text(),
            "Nothing to validate: the limit of its batches is 0.\nNothing to test: the limit of its batches is 0.\n"
            "Nothing to predict: the limit of its batches is 0.\n");
}

// Code that asks for the training loader, or for the length of the run, finds that there is none.
TEST(NothingToTrain, GoesWithSchedulesPeriodsAndSaves) {
  const TemporaryFolder folder;
  std::vector<std::string> saved;
  const auto save = [&](const std::string& name) {
    return [&, name](Trainer& trainer, auto&&...) {
      saved.push_back(folder.path() + "/" + name);
      trainer.save_checkpoint(saved.back());
    };
  };
  const auto run = [&](const std::function<void(TrainerOptions&)>& change,
                       const std::function<OptimizerConfig(TinyModule&)>& make = nullptr) {
    TrainerOptions options = quiet(2, LambdaCallback({.teardown = save("teardown.ckpt"),
                                                      .on_fit_start = save("start.ckpt"),
                                                      .on_fit_end = save("end.ckpt")}));
    options.limit_train_batches = int64_t{0};
    options.num_sanity_val_steps = 1;
    if (change) change(options);
    TinyModule module;
    module.make_optimizers = make;
    Trainer trainer(options);
    return error_of([&] { trainer.fit(module, tiny_loader(8), tiny_loader(8)); });
  };
  const auto scheduled = [](auto scheduler) {
    return [scheduler](TinyModule& m) {
      return OptimizerConfig(SGD(m.parameters(), {.lr = 0.1, .momentum = 0.9}), scheduler());
    };
  };
  const auto one_cycle = scheduled([] { return OneCycleLR({.max_lr = 0.5}); });
  EXPECT_EQ(run(nullptr), "");
  EXPECT_EQ(run(nullptr, one_cycle), "");
  EXPECT_EQ(run([](auto& o) { o.max_epochs = -1, o.max_steps = 9; }, one_cycle), "");
  EXPECT_EQ(run(nullptr, scheduled([] { return CosineWithWarmup({.warmup = int64_t{100}}); })), "");
  EXPECT_EQ(run([](auto& o) { o.val_check_interval = int64_t{5}; }), "");
  EXPECT_EQ(run([](auto& o) { o.accumulate_grad_batches = EffectiveBatchSize{8}, o.lr_scale = LrScale::linear; }), "");
  EXPECT_EQ(run([](auto& o) { o.recompute = "auto", o.reload_dataloaders_every_n_epochs = 1; }), "");
  EXPECT_EQ(saved.size(), 3U * 7);
  for (const auto& path : saved) EXPECT_NO_THROW((void)load_checkpoint(path)) << path;
}

TEST(NothingToTrain, HasNoPeriods) {
  Trainer trainer(quiet(1, {}));
  const std::string why = "completes: no training batch is running. Call it in on_train_batch_end.";
  EXPECT_EQ(error_of([&] { (void)trainer.completes("1ep"); }), why);
  TinyModule module;
  trainer.fit(module, tiny_loader(8));
  EXPECT_EQ(error_of([&] { (void)trainer.completes("0.5dur"); }), why);
}

}  // namespace
}  // namespace levin::nothing_to_train_test
