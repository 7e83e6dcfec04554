#include "levin/callbacks/early_stopping.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "callbacks/quiet_trainer.h"
#include "support/captured_console.h"
#include "support/tiny_module.h"

namespace levin::early_stopping_test {
namespace {

using namespace test;

struct Outcome {
  int64_t epochs;
  std::shared_ptr<EarlyStopping> callback;
  std::string reason;
};

Outcome run(EarlyStoppingOptions options, std::vector<double> values, int64_t max_epochs = 8) {
  TinyModule module;
  module.table = std::move(values);
  auto callback = std::make_shared<EarlyStopping>(options);
  Trainer trainer(quiet(max_epochs, {callback}));
  trainer.fit(module, tiny_loader(24), tiny_loader(16));
  return {trainer.current_epoch(), callback, trainer.stop_reason()};
}

// Numbers of these four: recorded from Lightning 2.6.6.
TEST(EarlyStopping, StopsAfterPatienceChecksWithoutImprovement) {
  const Outcome outcome = run({.monitor = "v", .patience = 2}, {0.9, 0.5, 0.6, 0.55, 0.4});
  EXPECT_EQ(outcome.epochs, 4);
  EXPECT_EQ(outcome.callback->stopped_epoch(), 3);
  EXPECT_EQ(outcome.callback->wait_count(), 2);
  EXPECT_EQ(outcome.callback->best_score(), 0.5);
  EXPECT_TRUE(has(outcome.reason, "did not improve in 2 checks")) << outcome.reason;
}

TEST(EarlyStopping, CountsOnlyImprovementsAboveMinDelta) {
  const Outcome outcome = run({.monitor = "v", .min_delta = 0.1, .patience = 2}, {0.9, 0.85, 0.82, 0.5});
  EXPECT_EQ(outcome.epochs, 3);
  EXPECT_EQ(outcome.callback->stopped_epoch(), 2);
}

TEST(EarlyStopping, StopsAtTheStoppingThreshold) {
  const Outcome outcome = run({.monitor = "v", .patience = 5, .stopping_threshold = 0.35}, {0.9, 0.5, 0.4, 0.3, 0.2});
  EXPECT_EQ(outcome.epochs, 4);
  EXPECT_EQ(outcome.callback->wait_count(), 0);
  EXPECT_TRUE(has(outcome.reason, "stopping_threshold 0.35"));
}

TEST(EarlyStopping, StopsAtAValueThatIsNotFinite) {
  const Outcome outcome = run({.monitor = "v", .patience = 5}, {0.9, 0.5, std::numeric_limits<double>::infinity()});
  EXPECT_EQ(outcome.epochs, 3);
  EXPECT_EQ(outcome.callback->stopped_epoch(), 2);
  EXPECT_EQ(outcome.callback->wait_count(), 0);
  EXPECT_TRUE(has(outcome.reason, "not finite"));
}

TEST(EarlyStopping, ConstantMetricWithPatience3RunsFourEpochs) {
  const Outcome outcome = run({.monitor = "v"}, {1.0});
  EXPECT_EQ(outcome.epochs, 4);
  EXPECT_EQ(outcome.callback->stopped_epoch(), 3);
}

TEST(EarlyStopping, LooksForTheLargestInModeMaxAndAtDivergence) {
  EXPECT_EQ(run({.monitor = "v", .patience = 1, .mode = MonitorMode::max}, {0.1, 0.2, 0.3, 0.2, 0.5}).epochs, 4);
  const Outcome diverged = run({.monitor = "v", .patience = 9, .divergence_threshold = 2.0}, {1.0, 1.5, 2.5, 0.1});
  EXPECT_EQ(diverged.epochs, 3);
  EXPECT_TRUE(has(diverged.reason, "divergence_threshold 2"));
}

TEST(EarlyStopping, NanWithoutCheckFiniteCountsAsNoImprovement) {
  const Outcome outcome = run({.monitor = "v", .patience = 2, .check_finite = false}, {1.0, NAN, NAN, 0.1});
  EXPECT_EQ(outcome.epochs, 3);
}

TEST(EarlyStopping, NamesAMetricThatWasNeverLogged) {
  TinyModule module;
  const CapturedConsole console;
  Trainer trainer(quiet(2, EarlyStopping({.monitor = "val_los"})));
  const std::string error = error_of([&] { trainer.fit(module, tiny_loader(8), tiny_loader(8)); });
  EXPECT_TRUE(has(error, "\"val_los\"") && has(error, "Logged: train_loss, val_loss") && has(error, "epoch 0") &&
              has(error, "Did you mean \"val_loss\"?") && has(error, ".strict"))
      << error;
  EXPECT_TRUE(
      console.has("EarlyStopping: metric \"val_los\" was not logged by the sanity check or the first training "
                  "batch. Logged: train_loss, val_loss. Did you mean \"val_loss\"?"))
      << console.text();
}

// The 2 batches of the sanity check do not show what the others log.
TEST(EarlyStopping, MayMonitorWhatTheSanityCheckDoesNotLog) {
  struct Late : TinyModule {
    void validation_step(const Batch&, int64_t batch_idx) override {
      log("val_loss", 1.0);
      if (!trainer().sanity_checking()) log("val_acc", 0.5);
      if (batch_idx == 3) log("val_last", 0.5);
    }
  } module;
  for (const std::string monitor : {"val_acc", "val_last"}) {
    Trainer trainer(quiet(5, EarlyStopping({.monitor = monitor, .patience = 1})));
    trainer.fit(module, tiny_loader(8), tiny_loader(16));
    EXPECT_EQ(trainer.current_epoch(), 2) << monitor << " never improves";
  }
}

TEST(EarlyStopping, WarnsInsteadWhenNotStrict) {
  const CapturedConsole console;
  EXPECT_EQ(run({.monitor = "absent", .strict = false}, {}, 2).epochs, 2);
  EXPECT_TRUE(console.has("warning") && console.has("\"absent\""));
}

TEST(EarlyStopping, ChecksAfterEachValidationWhenThereAreSeveral) {
  TinyModule module;
  module.table = {1.0};
  auto callback = std::make_shared<EarlyStopping>(EarlyStoppingOptions{.monitor = "v", .patience = 1});
  TrainerOptions options = quiet(5, {callback});
  options.val_check_interval = int64_t{2};
  Trainer trainer(options);
  trainer.fit(module, tiny_loader(24), tiny_loader(16));  // 6 batches: validations after 2, 4 and 6
  EXPECT_EQ(trainer.global_step(), 4 + 0);
  EXPECT_EQ(callback->stopped_epoch(), 0);
}

// Expected numbers are counted manually: a validation in every second epoch.
TEST(EarlyStopping, DoesNotCountEpochsInWhichItsMetricWasNotMeasured) {
  const auto epochs = [](std::vector<double> values, std::optional<bool> after_epochs) {
    TinyModule module;
    module.table = std::move(values);
    TrainerOptions options =
        quiet(12, EarlyStopping({.monitor = "v", .patience = 2, .check_on_train_epoch_end = after_epochs}));
    options.check_val_every_n_epoch = 2;
    options.num_sanity_val_steps = 0;
    Trainer trainer(options);
    trainer.fit(module, tiny_loader(8), tiny_loader(8));
    return trainer.current_epoch();
  };
  for (const std::optional<bool> when :
       {std::optional<bool>(true), std::optional<bool>(false), std::optional<bool>()}) {
    EXPECT_EQ(epochs({9, 8, 7, 6, 5, 4, 3, 2, 1, 0, -1, -2}, when), 12);
    EXPECT_EQ(epochs({1}, when), 6);  // validations of epochs 1, 3 and 5: the last two without improvement
  }
}

TEST(EarlyStopping, CountsATrainingMetricOnceAnEpochWhereValidationsRunWithin) {
  struct Losses : TinyModule {
    at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
      log("mean", 1.0, {.on_step = false, .on_epoch = true});
      return TinyModule::training_step(batch, batch_idx);
    }
  } module;
  TrainerOptions options = quiet(8, EarlyStopping({.monitor = "mean", .patience = 2}));
  options.val_check_interval = 0.5;
  Trainer trainer(options);
  trainer.fit(module, tiny_loader(16), tiny_loader(8));
  EXPECT_EQ(trainer.current_epoch(), 3);
}

TEST(EarlyStopping, WatchesATrainingMetricWithoutValidation) {
  TinyModule module;
  Trainer trainer(quiet(9, EarlyStopping({.monitor = "train_loss", .min_delta = 10, .patience = 2})));
  trainer.fit(module, tiny_loader(24));
  EXPECT_EQ(trainer.current_epoch(), 3);
}

TEST(EarlyStopping, SleepsInFastDevRunAndMinEpochsWin) {
  TinyModule module;
  TrainerOptions options = quiet(8, EarlyStopping({.monitor = "absent"}));
  options.fast_dev_run = true;
  Trainer(options).fit(module, tiny_loader(24), tiny_loader(16));
  module.table = {1.0};
  options = quiet(8, EarlyStopping({.monitor = "v", .patience = 1}));
  options.min_epochs = 5;
  Trainer trainer(options);
  trainer.fit(module, tiny_loader(24), tiny_loader(16));
  EXPECT_EQ(trainer.current_epoch(), 5);
}

TEST(EarlyStopping, StateContinuesTheCount) {
  const Outcome first = run({.monitor = "v", .patience = 5}, {0.5, 0.7, 0.6}, 3);
  EarlyStopping second({.monitor = "v", .patience = 5});
  second.load_state_dict(first.callback->state_dict());
  EXPECT_EQ(second.wait_count(), 2);
  EXPECT_EQ(second.best_score(), 0.5);
}

TEST(EarlyStopping, RefusesOptionsOutOfRange) {
  const std::string error = error_of([] { EarlyStopping({.monitor = "", .min_delta = -1, .patience = -2}); });
  EXPECT_TRUE(has(error, "monitor") && has(error, "min_delta") && has(error, "-1") && has(error, "patience")) << error;
}

}  // namespace
}  // namespace levin::early_stopping_test
