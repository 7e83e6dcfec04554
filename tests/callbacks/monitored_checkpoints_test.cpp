// Which value of its monitor ranks a checkpoint, and where a wrong monitor is detected.
#include <gtest/gtest.h>

#include <functional>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/callbacks/model_checkpoint.h"
#include "levin/checkpoint/checkpoint_file.h"
#include "support/captured_console.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::monitored_checkpoints_test {
namespace {

using namespace test;
using Names = std::vector<std::string>;

// Its validations, one after the other, log `values` as "v".
struct Scripted : TinyModule {
  void validation_step(const Batch&, int64_t) override {
    const double value = values.at(std::min(done, values.size() - 1));
    log("v", value, how);
  }
  void on_validation_epoch_end() override { ++done; }
  std::vector<double> values = {};
  LogOptions how = {};
  size_t done = 0;
};

// 16 training batches an epoch.
std::vector<std::string> names_of(ModelCheckpointOptions checkpoint, const std::function<void(TrainerOptions&)>& change,
                                  std::vector<double> values, int64_t epochs = 1) {
  const TemporaryFolder folder;
  checkpoint.dirpath = folder.path();
  Scripted module;
  module.values = std::move(values);
  TrainerOptions options = quiet(epochs, {ModelCheckpoint(checkpoint)});
  options.num_sanity_val_steps = 0;
  change(options);
  Trainer(options).fit(module, tiny_loader(64), tiny_loader(8));
  return folder.names();
}

TEST(MonitoredCheckpoint, JudgesASaveByTheValidationOfItsOwnStep) {
  const std::vector<double> values = {0.9, 0.1, 0.8, 0.7};
  ModelCheckpointOptions every_4{.filename = "{step}-{v:.1f}", .monitor = "v", .every_n_train_steps = 4};
  const auto at_4 = [](TrainerOptions& options) { options.val_check_interval = int64_t{4}; };
  EXPECT_EQ(names_of(every_4, at_4, values), Names{"step=8-v=0.1.ckpt"});
  every_4.save_top_k = -1;
  const Names all{"step=12-v=0.8.ckpt", "step=16-v=0.7.ckpt", "step=4-v=0.9.ckpt", "step=8-v=0.1.ckpt"};
  EXPECT_EQ(names_of(every_4, at_4, values), all);
  every_4.every_n_train_steps = std::nullopt;
  every_4.every = Period("4ba");
  EXPECT_EQ(names_of(every_4, at_4, values), all);
  every_4.monitor = "";  // the name alone shows it
  EXPECT_EQ(names_of(every_4, at_4, values), all);
  every_4.save_top_k = 1;
  every_4.monitor = "v";
  every_4.every = std::nullopt;
  every_4.train_time_interval = Seconds(1e-9);
  EXPECT_EQ(names_of(every_4, at_4, values), Names{"step=8-v=0.1.ckpt"});
}

TEST(MonitoredCheckpoint, ANameShowsNoValueOfOtherWeights) {
  const std::vector<double> values = {0.9, 0.1, 0.8, 0.7, 0.6};
  const auto at_4 = [](TrainerOptions& options) { options.val_check_interval = int64_t{4}; };
  ModelCheckpointOptions every_2{.filename = "{step}-{v:.1f}", .save_top_k = -1, .every_n_train_steps = 2};
  for (const char* monitor : {"", "train_loss"}) {
    every_2.monitor = monitor;
    EXPECT_EQ(names_of(every_2, at_4, values),
              (Names{"step=10-v=nan.ckpt", "step=12-v=0.8.ckpt", "step=14-v=nan.ckpt", "step=16-v=0.7.ckpt",
                     "step=2-v=nan.ckpt", "step=4-v=0.9.ckpt", "step=6-v=nan.ckpt", "step=8-v=0.1.ckpt"}))
        << monitor;
  }
  // Validations after batches 3, 6, 9, 12 and 15; steps after 4, 8, 12 and 16.
  const ModelCheckpointOptions every_step{.filename = "{step}-{v:.1f}", .save_top_k = -1, .every_n_train_steps = 1};
  const auto windows = [](TrainerOptions& options) {
    options.accumulate_grad_batches = 4;
    options.val_check_interval = int64_t{3};
  };
  EXPECT_EQ(names_of(every_step, windows, values),
            (Names{"step=1-v=nan.ckpt", "step=2-v=nan.ckpt", "step=3-v=0.7.ckpt", "step=4-v=nan.ckpt"}));
}

TEST(MonitoredCheckpoint, TheNameOfAFailedRunsFileShowsNoValueOfOtherWeights) {
  const TemporaryFolder folder;
  Scripted module;
  module.values = {0.9, 0.1};
  module.on_training_step = [](int64_t batch) {
    if (batch == 10) throw Error("a fault");
  };
  TrainerOptions options = quiet(1, {ModelCheckpoint({.dirpath = folder.path(),
                                                      .filename = "{step}-{v:.1f}",
                                                      .save_on_exception = true,
                                                      .every_n_train_steps = 8})});
  options.num_sanity_val_steps = 0;
  options.val_check_interval = int64_t{4};
  EXPECT_THROW(Trainer(options).fit(module, tiny_loader(64), tiny_loader(8)), Error);
  EXPECT_EQ(folder.names(), (Names{"step=10-v=nan.ckpt", "step=8-v=0.1.ckpt"}));
}

TEST(MonitoredCheckpoint, ASaveBetweenTwoValidationsWaitsForTheNext) {
  const auto at_6 = [](TrainerOptions& options) { options.val_check_interval = int64_t{6}; };
  const ModelCheckpointOptions every_4{
      .filename = "{step}-{v:.1f}", .monitor = "v", .save_top_k = -1, .every_n_train_steps = 4};
  EXPECT_EQ(names_of(every_4, at_6, {0.9, 0.8}), (Names{"step=12-v=0.8.ckpt", "step=6-v=0.9.ckpt"}));
}

TEST(MonitoredCheckpoint, LastIsWrittenWhileASaveWaits) {
  const TemporaryFolder folder;
  std::vector<int64_t> newest;
  LambdaCallback look(
      {.on_train_batch_end = [&](Trainer& trainer, LightningModule&, const at::Tensor&, const Batch&, int64_t batch) {
        if (batch != 5) return;
        trainer.finish_checkpoints();
        newest.push_back(read_checkpoint(folder / "last.ckpt").get<int64_t>("global_step"));
      }});
  Scripted module;
  module.values = {0.9};
  TrainerOptions options = quiet(1, {look, ModelCheckpoint({.dirpath = folder.path(),
                                                            .filename = "best",
                                                            .monitor = "v",
                                                            .save_last = true,
                                                            .every_n_train_steps = 4})});
  options.num_sanity_val_steps = 0;
  Trainer(options).fit(module, tiny_loader(64), tiny_loader(8));
  EXPECT_EQ(newest, std::vector<int64_t>{4});
  EXPECT_EQ(folder.names(), (Names{"best.ckpt", "last.ckpt"}));
  EXPECT_EQ(read_checkpoint(folder / "best.ckpt").get<int64_t>("global_step"), 16);
}

TEST(MonitoredCheckpoint, InAWindowASaveIsJudgedOnceAndByItsWeights) {
  const ModelCheckpointOptions every_step{
      .filename = "{step}-{v:.1f}", .monitor = "v", .save_top_k = -1, .every_n_train_steps = 1};
  const auto windows_of_4 = [](int64_t interval) {
    return [=](TrainerOptions& options) {
      options.accumulate_grad_batches = 4;
      options.val_check_interval = interval;
    };
  };
  // Validations after batches 6 and 12, in the second window and after the third.
  EXPECT_EQ(names_of(every_step, windows_of_4(6), {0.9, 0.8}), (Names{"step=1-v=0.9.ckpt", "step=3-v=0.8.ckpt"}));
  // After batches 2, 4, 6, …: a step is saved with the value of the validation that follows it.
  EXPECT_EQ(names_of(every_step, windows_of_4(2), {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8}),
            (Names{"step=1-v=0.2.ckpt", "step=2-v=0.4.ckpt", "step=3-v=0.6.ckpt", "step=4-v=0.8.ckpt"}));
  // A training metric that is better in batches that end no window.
  const TemporaryFolder folder;
  struct Losses : TinyModule {
    at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
      log("l", batch_idx == 3 ? 5.0 : batch_idx % 4 == 3 ? 9.0 : 1.0);
      return TinyModule::training_step(batch, batch_idx);
    }
  } module;
  TrainerOptions options = quiet(
      1, {ModelCheckpoint(
             {.dirpath = folder.path(), .filename = "{step}-{l:.1f}", .monitor = "l", .every_n_train_steps = 1})});
  options.accumulate_grad_batches = 4;
  Trainer(options).fit(module, tiny_loader(64));
  EXPECT_EQ(folder.names(), Names{"step=1-l=5.0.ckpt"});
}

TEST(MonitoredCheckpoint, AnEpochWithoutAValidationIsNotJudgedByAnEarlierOne) {
  const ModelCheckpointOptions at_epochs{
      .filename = "{epoch}-{v:.1f}", .monitor = "v", .save_top_k = -1, .save_on_train_epoch_end = true};
  const auto every_second = [](TrainerOptions& options) { options.check_val_every_n_epoch = 2; };
  EXPECT_EQ(names_of(at_epochs, every_second, {0.9, 0.8}, 5), (Names{"epoch=1-v=0.9.ckpt", "epoch=3-v=0.8.ckpt"}));
}

TEST(MonitoredCheckpoint, ComparesEpochsByATrainingMetricWhereValidationsRunWithin) {
  const TemporaryFolder folder;
  struct Losses : TinyModule {
    at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
      log("mean", 3.0 - static_cast<double>(current_epoch()), {.on_step = false, .on_epoch = true});
      return TinyModule::training_step(batch, batch_idx);
    }
  } module;
  TrainerOptions options = quiet(
      2,
      {ModelCheckpoint(
          {.dirpath = folder.path(), .filename = "{epoch}-{step}-{mean:.0f}", .monitor = "mean", .save_top_k = -1})});
  options.val_check_interval = 0.5;
  Trainer(options).fit(module, tiny_loader(16), tiny_loader(8));
  EXPECT_EQ(folder.names(), (Names{"epoch=0-step=4-mean=3.ckpt", "epoch=1-step=8-mean=2.ckpt"}));
}

TEST(MonitoredCheckpoint, ReportsThatAMetricIsLoggedForBatchesOnly) {
  for (const int64_t sanity : {0, 1}) {
    const TemporaryFolder folder;
    Scripted module;
    module.values = {0.9};
    module.how = {.on_step = true, .on_epoch = false};
    TrainerOptions options = quiet(2, {ModelCheckpoint({.dirpath = folder.path(), .monitor = "v"})});
    options.num_sanity_val_steps = sanity;
    const std::string error = error_of([&] { Trainer(options).fit(module, tiny_loader(16), tiny_loader(8)); });
    EXPECT_TRUE(has(error, "ModelCheckpoint: metric \"v\" is logged per batch only (on_step)")) << error;
    EXPECT_TRUE(has(error, ".on_epoch = true")) << error;
  }
}

// ---- monitors that nothing logs -------------------------------------------------------------------------------------

// The warnings of a fit about a monitor that nothing has logged by the end of its first batch, and its error.
struct Missing {
  Missing(TinyModule& module, const std::string& monitor, int64_t num_sanity_val_steps = 2,
          const Loaders& val = {tiny_loader(16)}) {
    const CapturedConsole console;
    const TemporaryFolder folder;
    TrainerOptions options = quiet(1, {ModelCheckpoint({.dirpath = folder.path(), .monitor = monitor})});
    options.num_sanity_val_steps = num_sanity_val_steps;
    error = error_of([&] { Trainer(options).fit(module, {tiny_loader(8)}, val); });
    for (const std::string& line : console.lines()) {
      if (has(line, "the first training batch")) warnings += line + "\n";
    }
    files = folder.names();
  }
  std::string warnings = "";
  std::string error = "";
  Names files = {};
};

TEST(MonitoredCheckpoint, TheFirstBatchWarnsOfANameThatNothingHasLogged) {
  TinyModule module;
  const Missing similar(module, "val_los");
  EXPECT_TRUE(holds(similar.warnings,
                    {"ModelCheckpoint: metric \"val_los\" was not logged by the sanity check or the first training "
                     "batch. Logged: train_loss, val_loss. Did you mean \"val_loss\"? If nothing logs it later, the "
                     "run ends with an error where ModelCheckpoint first needs it. Set .monitor to a name that is "
                     "logged."}));
  EXPECT_TRUE(has(similar.error, "metric \"val_los\" was never logged by epoch 0")) << similar.error;
  for (const std::string monitor : {"acc_val", "eval-f1", "score"}) {
    const Missing other(module, monitor);
    EXPECT_TRUE(has(other.warnings, "metric \"" + monitor + "\" was not logged")) << other.warnings;
  }
  const Missing without(module, "train_los", 2, {});
  EXPECT_TRUE(holds(without.warnings, {"was not logged by the first training batch. Logged: train_loss.",
                                       "Did you mean \"train_loss\"?"}));
}

TEST(MonitoredCheckpoint, NoWarningIsLoggedOfNamesThatAreLoggedOrNotKnownYet) {
  struct Both : TinyModule {
    at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
      log("both", 1.0, {.on_step = true, .on_epoch = true});
      log("mean", 1.0, {.on_step = false, .on_epoch = true});
      return TinyModule::training_step(batch, batch_idx);
    }
  } module;
  for (const std::string monitor : {"train_loss", "val_loss", "both", "both_step", "both_epoch", "mean", "step"}) {
    EXPECT_EQ(Missing(module, monitor).warnings, "") << monitor;
  }
  // Without a sanity check it is not known what validation logs.
  for (const std::string monitor : {"val_loss", "val_los", "score"}) {
    EXPECT_EQ(Missing(module, monitor, 0).warnings, "") << monitor;
  }
  EXPECT_TRUE(has(Missing(module, "trai_loss", 0).warnings, "Did you mean \"train_loss\"?"));
}

TEST(MonitoredCheckpoint, MayMonitorWhatTheSanityCheckDoesNotLog) {
  struct Late : TinyModule {
    void validation_step(const Batch& batch, int64_t batch_idx) override {
      if (!trainer().sanity_checking()) log("val_acc", 0.5);
      if (batch_idx == 3) log("val_last", 0.25);
      TinyModule::validation_step(batch, batch_idx);
    }
  } module;
  for (const std::string monitor : {"val_acc", "val_last"}) {
    const Missing run(module, monitor);
    EXPECT_EQ(run.error, "") << monitor;
    EXPECT_EQ(run.files, Names{"epoch=0-step=2.ckpt"}) << monitor;
    EXPECT_TRUE(has(run.warnings, "If nothing logs it later")) << run.warnings;
  }
}

}  // namespace
}  // namespace levin::monitored_checkpoints_test
