#include "levin/callbacks/model_checkpoint.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/checkpoint_folder.h"
#include "levin/checkpoint/checkpoint_file.h"
#include "levin/core/files/files.h"
#include "support/captured_console.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::model_checkpoint_test {
namespace {

using namespace test;
using Names = std::vector<std::string>;

std::string base(const std::string& path) {
  return std::filesystem::path(path).filename();
}

// 6 training and 4 validation batches an epoch; `table` is the metric "v" of each epoch.
std::shared_ptr<ModelCheckpoint> fit(const TemporaryFolder& folder, ModelCheckpointOptions options, int64_t epochs,
                                     std::vector<double> table = {}, const std::string& ckpt_path = "") {
  options.dirpath = folder.path();
  auto callback = std::make_shared<ModelCheckpoint>(options);
  TinyModule module;
  module.table = std::move(table);
  Trainer trainer(quiet(epochs, {callback}));
  trainer.fit(module, tiny_loader(24), tiny_loader(16), ckpt_path);
  return callback;
}

// ---- names and times, as recorded from Lightning 2.6.6 --------------------------------------------------------------

TEST(ModelCheckpoint, KeepsTheNewestByDefault) {
  const TemporaryFolder folder;
  const auto callback = fit(folder, {}, 3);
  EXPECT_EQ(folder.names(), Names{"epoch=2-step=18.ckpt"});
  EXPECT_EQ(callback->best_model_path(), folder / "epoch=2-step=18.ckpt");
  EXPECT_EQ(callback->best_model_score(), std::nullopt);
  EXPECT_EQ(callback->last_model_path(), "");
}

TEST(ModelCheckpoint, KeepsAllWithTopKMinusOne) {
  const TemporaryFolder folder;
  fit(folder, {.save_top_k = -1}, 3);
  EXPECT_EQ(folder.names(), (Names{"epoch=0-step=6.ckpt", "epoch=1-step=12.ckpt", "epoch=2-step=18.ckpt"}));
}

TEST(ModelCheckpoint, SavesTheSameStepsForTheNextTrainer) {
  const TemporaryFolder folder;
  const TrainerOptions options =
      quiet(2, {ModelCheckpoint({.dirpath = folder.path(), .save_last = true, .save_top_k = -1})});
  for (int run = 0; run < 2; ++run) {
    TinyModule module;
    Trainer(options).fit(module, tiny_loader(24), tiny_loader(16));
    EXPECT_EQ(read_checkpoint(folder / "last.ckpt").get<int64_t>("global_step"), 12);
  }
  EXPECT_EQ(folder.names(), (Names{"epoch=0-step=6-v1.ckpt", "epoch=0-step=6.ckpt", "epoch=1-step=12-v1.ckpt",
                                   "epoch=1-step=12.ckpt", "last.ckpt"}));
}

TEST(ModelCheckpoint, SavesTheSameStateIfTheFileToRemoveIsGone) {
  std::vector<std::vector<std::string>> removed;
  for (const bool is_gone : {false, true}) {  // a killed run had removed it before the checkpoint to continue from
    const TemporaryFolder folder;
    (void)fit(folder, {}, 1);
    std::filesystem::copy(folder / "epoch=0-step=6.ckpt", folder / "copy.ckpt");
    if (is_gone) std::filesystem::remove(folder / "epoch=0-step=6.ckpt");
    const auto callback = fit(folder, {}, 2, {}, folder / "copy.ckpt");
    const State saved = read_checkpoint(folder / "epoch=1-step=12.ckpt").part("callbacks." + callback->state_key());
    removed.push_back(saved.get<std::vector<std::string>>("point_removed"));
    ASSERT_EQ(removed.back().size(), 1);
    EXPECT_EQ(base(removed.back()[0]), "epoch=0-step=6.ckpt");
    EXPECT_EQ(folder.names(), (Names{"copy.ckpt", "epoch=1-step=12.ckpt"}));
  }
}

TEST(ModelCheckpoint, KeepsTheTwoBest) {
  const TemporaryFolder folder;
  const auto callback =
      fit(folder, {.filename = "{epoch}-{step}-{v:.2f}", .monitor = "v", .save_top_k = 2}, 4, {0.9, 0.4, 0.7, 0.5});
  EXPECT_EQ(folder.names(), (Names{"epoch=1-step=12-v=0.40.ckpt", "epoch=3-step=24-v=0.50.ckpt"}));
  EXPECT_EQ(base(callback->best_model_path()), "epoch=1-step=12-v=0.40.ckpt");
  EXPECT_EQ(callback->best_model_score(), 0.4);
}

TEST(ModelCheckpoint, SavesEveryNSteps) {
  const TemporaryFolder folder;
  fit(folder, {.save_top_k = -1, .every_n_train_steps = 5}, 2);
  EXPECT_EQ(folder.names(), (Names{"epoch=0-step=5.ckpt", "epoch=1-step=10.ckpt"}));
}

TEST(ModelCheckpoint, SavesEveryNEpochs) {
  const TemporaryFolder folder;
  fit(folder, {.save_top_k = -1, .every_n_epochs = 2}, 5);
  EXPECT_EQ(folder.names(), (Names{"epoch=1-step=12.ckpt", "epoch=3-step=24.ckpt"}));
}

TEST(ModelCheckpoint, LeavesMetricNamesOut) {
  const TemporaryFolder folder;
  fit(folder, {.filename = "m-{epoch:03d}-{v:.1f}", .monitor = "v", .save_top_k = -1, .auto_insert_metric_name = false},
      2, {0.9, 0.4});
  EXPECT_EQ(folder.names(), (Names{"m-000-0.9.ckpt", "m-001-0.4.ckpt"}));
}

TEST(ModelCheckpoint, MissingMonitorIsAnErrorThatNamesIt) {
  const TemporaryFolder folder;
  const std::string error = error_of([&] { fit(folder, {.monitor = "absent"}, 1); });
  EXPECT_TRUE(has(error, "\"absent\"") && has(error, "train_loss, val_loss") && has(error, ".monitor")) << error;
  EXPECT_TRUE(folder.names().empty());
}

// Lightning compares steps 8 and 10 by the value of step 6.
TEST(ModelCheckpoint, StepsWaitForAMonitorThatValidationLogs) {
  const TemporaryFolder folder;  // due after steps 2, 4 and 6 of each epoch, and validated after the last of them
  fit(folder, {.monitor = "v", .save_top_k = -1, .every_n_train_steps = 2}, 2, {0.9, 0.4});
  EXPECT_EQ(folder.names(), (Names{"epoch=0-step=6.ckpt", "epoch=1-step=12.ckpt"}));
}

TEST(ModelCheckpoint, SavesAfterEachValidationWithinTheEpoch) {
  const TemporaryFolder folder;
  auto callback = std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{.dirpath = folder.path(), .save_top_k = -1});
  TinyModule module;
  TrainerOptions options = quiet(1, {callback});
  options.val_check_interval = 0.5;
  Trainer(options).fit(module, tiny_loader(24), tiny_loader(16));
  EXPECT_EQ(folder.names(), (Names{"epoch=0-step=3.ckpt", "epoch=0-step=6.ckpt"}));
}

TEST(ModelCheckpoint, TimeTriggerSavesAsOftenAsTheClockSays) {
  const TemporaryFolder folder;
  fit(folder, {.save_top_k = -1, .train_time_interval = Seconds(1e-9)}, 1);
  EXPECT_EQ(folder.names().size(), 6U);
  const TemporaryFolder other;
  fit(other, {.save_top_k = -1, .train_time_interval = Seconds(3600)}, 1);
  EXPECT_EQ(other.names(), Names{"epoch=0-step=6.ckpt"});  // at its end
}

// ---- better than Lightning ------------------------------------------------------------------------------------------

TEST(ModelCheckpoint, LastIsTheNewestStateAlsoWithoutImprovement) {
  const TemporaryFolder folder;
  const auto callback = fit(folder, {.monitor = "v", .save_last = true}, 3, {0.9, 0.4, 0.7});
  EXPECT_EQ(folder.names(), (Names{"epoch=1-step=12.ckpt", "last.ckpt"}));
  EXPECT_EQ(read_checkpoint(folder / "last.ckpt").get<int64_t>("global_step"), 18);
  EXPECT_EQ(read_checkpoint(folder / "epoch=1-step=12.ckpt").get<int64_t>("global_step"), 12);
  EXPECT_EQ(callback->last_model_path(), folder / "last.ckpt");
}

TEST(ModelCheckpoint, LastIsWrittenAtTheEndWhereNothingElseWasDue) {
  const TemporaryFolder folder;
  fit(folder, {.save_last = true, .save_top_k = 0, .every_n_train_steps = 1000}, 2);
  EXPECT_EQ(folder.names(), Names{"last.ckpt"});
  EXPECT_EQ(read_checkpoint(folder / "last.ckpt").get<int64_t>("global_step"), 12);
}

TEST(ModelCheckpoint, LastWithTopKIsWrittenAtTheEndIfNoneOfTheBestIsKept) {
  const TemporaryFolder folder;
  fit(folder, {.save_last = "with_top_k", .save_top_k = 0}, 2);
  EXPECT_EQ(folder.names(), Names{"last.ckpt"});
  EXPECT_EQ(read_checkpoint(folder / "last.ckpt").get<int64_t>("global_step"), 12);
}

TEST(ModelCheckpoint, ARunThatEndsBeforeItsFirstSavePointSavesOnce) {
  const auto names = [](ModelCheckpointOptions checkpoint) {
    const TemporaryFolder folder;
    checkpoint.dirpath = folder.path();
    TinyModule module;
    TrainerOptions options = quiet(9, {std::make_shared<ModelCheckpoint>(checkpoint)});
    options.max_steps = 4;
    Trainer(options).fit(module, tiny_loader(24));
    return folder.names();
  };
  EXPECT_EQ(names({.every_n_train_steps = 100}), Names{"epoch=0-step=4.ckpt"});
  EXPECT_EQ(names({.every_n_train_steps = 4}), Names{"epoch=0-step=4.ckpt"});
  EXPECT_EQ(names({.save_top_k = 0, .every_n_train_steps = 100}), Names{});
  const CapturedConsole console;
  EXPECT_EQ(names({.monitor = "val_loss", .every_n_train_steps = 100}), Names{"last.ckpt"});
  EXPECT_TRUE(console.has("the run ended before \"val_loss\" was logged, so its only checkpoint is")) << console.text();
}

TEST(ModelCheckpoint, LastMayBeARelativeLinkToTheNewestFile) {
  const TemporaryFolder folder;
  fit(folder, {.save_last = "link"}, 2);
  EXPECT_EQ(std::filesystem::read_symlink(folder / "last.ckpt"), "epoch=1-step=12.ckpt");
  EXPECT_EQ(read_checkpoint(folder / "last.ckpt").get<int64_t>("global_step"), 12);
}

TEST(ModelCheckpoint, NanIsReplacedByAnyNumber) {
  const TemporaryFolder folder;
  const auto callback = fit(folder, {.monitor = "v"}, 4, {NAN, 8, 7, 5});
  EXPECT_EQ(folder.names(), Names{"epoch=3-step=24.ckpt"});
  EXPECT_EQ(callback->best_model_score(), 5);
}

// ---- files of others ------------------------------------------------------------------------------------------------

TEST(ModelCheckpoint, NeverTouchesFilesItDidNotWrite) {
  const TemporaryFolder folder;
  write_file_durably(folder / "last.ckpt", "theirs");
  write_file_durably(folder / "epoch=0-step=6.ckpt", "theirs");
  fit(folder, {.save_last = true}, 2);
  EXPECT_EQ(folder.names(), (Names{"epoch=0-step=6.ckpt", "epoch=1-step=12.ckpt", "last-v1.ckpt", "last.ckpt"}));
  EXPECT_EQ(read_file(folder / "last.ckpt"), "theirs");
  EXPECT_EQ(read_file(folder / "epoch=0-step=6.ckpt"), "theirs");
}

TEST(ModelCheckpoint, CountsVersionsOfANameOrOverwrites) {
  const TemporaryFolder folder;
  fit(folder, {.filename = "x", .save_top_k = -1}, 3);
  EXPECT_EQ(folder.names(), (Names{"x-v1.ckpt", "x-v2.ckpt", "x.ckpt"}));
  const TemporaryFolder other;
  fit(other, {.filename = "x", .save_top_k = -1, .enable_version_counter = false}, 3);
  EXPECT_EQ(other.names(), Names{"x.ckpt"});
}

TEST(ModelCheckpoint, ResumedRunContinuesWithItsFiles) {
  const TemporaryFolder folder;
  fit(folder, {.save_last = true}, 2);
  const auto callback = fit(folder, {.save_last = true}, 4, {}, folder / "last.ckpt");
  EXPECT_EQ(folder.names(), (Names{"epoch=3-step=24.ckpt", "last.ckpt"}));
  EXPECT_EQ(base(callback->best_model_path()), "epoch=3-step=24.ckpt");
}

// The surplus files are removed when the next file is saved, or at the end of training if no file follows.
TEST(ModelCheckpoint, ResumedRunKeepsAsManyAsItsOwnOptionsSay) {
  const std::vector<double> before{0.3, 0.5, 0.4};
  const auto names = [&](int64_t kept, double next, bool save_last = false) {
    const TemporaryFolder folder;
    fit(folder, {.filename = "{epoch}", .monitor = "v", .save_last = save_last, .save_top_k = 3}, 3, before);
    EXPECT_EQ(folder.names().size(), save_last ? 4U : 3U);
    std::vector<double> table = before;
    table.push_back(next);
    const ModelCheckpointOptions options{
        .filename = "{epoch}", .monitor = "v", .save_last = save_last, .save_top_k = kept};
    const auto callback = fit(folder, options, 4, table, folder / (save_last ? "last.ckpt" : "epoch=2.ckpt"));
    EXPECT_EQ(base(callback->best_model_path()), next < 0.3 ? "epoch=3.ckpt" : "epoch=0.ckpt");
    return folder.names();
  };
  EXPECT_EQ(names(1, 0.2, true), (Names{"epoch=3.ckpt", "last.ckpt"}));
  EXPECT_EQ(names(1, 0.9, true), (Names{"epoch=0.ckpt", "last.ckpt"}));
  EXPECT_EQ(names(2, 0.2, true), (Names{"epoch=0.ckpt", "epoch=3.ckpt", "last.ckpt"}));
  // The file that the user has named to continue from stays.
  EXPECT_EQ(names(1, 0.2), (Names{"epoch=2.ckpt", "epoch=3.ckpt"}));
  EXPECT_EQ(names(1, 0.9), (Names{"epoch=0.ckpt", "epoch=2.ckpt"}));
  EXPECT_EQ(names(4, 0.9), (Names{"epoch=0.ckpt", "epoch=1.ckpt", "epoch=2.ckpt", "epoch=3.ckpt"}));
}

TEST(ModelCheckpoint, ResumingFromAnyStepEndsWithTheSameWeights) {
  const TemporaryFolder folder;
  TinyModule whole;
  auto all = std::make_shared<ModelCheckpoint>(
      ModelCheckpointOptions{.dirpath = folder.path(), .save_top_k = -1, .every_n_train_steps = 1});
  Trainer trainer(quiet(3, {all}));
  trainer.fit(whole, tiny_loader(24), tiny_loader(16));
  ASSERT_EQ(folder.names().size(), 18U);
  for (const auto& name : folder.names()) {
    TinyModule module;
    Trainer other(quiet(3, {}));
    other.fit(module, tiny_loader(24), tiny_loader(16), folder / name);
    EXPECT_TRUE(torch::equal(module.layer->weight, whole.layer->weight)) << name;
    EXPECT_EQ(other.global_step(), 18) << name;
    EXPECT_EQ(other.logging_step(), 18) << name;
  }
}

TEST(ModelCheckpoint, CheckpointSavedAfterFitContinuesWithTheNextEpoch) {
  const TemporaryFolder folder;
  TinyModule module;
  Trainer trainer(quiet(2, {}));
  trainer.fit(module, tiny_loader(24));
  trainer.save_checkpoint(folder / "a.ckpt");
  TinyModule other;
  Trainer longer(quiet(3, {}));
  longer.fit(other, tiny_loader(24), {}, folder / "a.ckpt");
  EXPECT_EQ(longer.global_step(), 18);
}

TEST(ModelCheckpoint, ReportsThatAResumedRunContinuesInADifferentFolder) {
  const TemporaryFolder folder, other;
  fit(folder, {.save_last = true}, 1);
  TinyModule module;
  Trainer trainer(quiet(2, ModelCheckpoint({.dirpath = other.path(), .save_last = true})));
  const CapturedConsole console;
  (void)trainer.test(module, tiny_loader(8), folder / "last.ckpt");
  EXPECT_FALSE(console.has("continues in"));
  trainer.fit(module, tiny_loader(24), tiny_loader(16), folder / "last.ckpt");
  EXPECT_TRUE(console.has("the run was saved in " + folder.path() + " and continues in " + other.path()));
}

TEST(ModelCheckpoint, LastAndBestAreFoundByName) {
  const TemporaryFolder folder;
  fit(folder, {.save_last = true}, 2);
  fit(folder, {.save_last = true}, 4, {}, "last");  // a new process knows the folder only
  EXPECT_EQ(read_checkpoint(folder / "last.ckpt").get<int64_t>("global_step"), 24);
  TinyModule module;
  Trainer trainer(quiet(1, ModelCheckpoint({.dirpath = folder / "empty"})));
  EXPECT_TRUE(has(error_of([&] { trainer.test(module, tiny_loader(8), "best"); }), "best"));
}

// ---- failures -------------------------------------------------------------------------------------------------------

TEST(ModelCheckpoint, SavesOnceOnAnException) {
  for (const bool enabled : {false, true}) {
    const TemporaryFolder folder;
    auto callback = std::make_shared<ModelCheckpoint>(
        ModelCheckpointOptions{.dirpath = folder.path(), .save_last = true, .save_on_exception = enabled});
    TinyModule module;
    module.on_training_step = [&](int64_t batch) {
      if (batch == 3) throw std::runtime_error("power cut");
    };
    Trainer trainer(quiet(1, {callback}));
    EXPECT_THROW(trainer.fit(module, tiny_loader(24)), std::runtime_error);
    EXPECT_EQ(folder.names(), enabled ? (Names{"epoch=0-step=3.ckpt", "last.ckpt"}) : Names{});
    if (!enabled) continue;
    TinyModule resumed, whole;  // the batch that failed is trained again
    Trainer(quiet(1, {})).fit(resumed, tiny_loader(24), {}, folder / "last.ckpt");
    Trainer(quiet(1, {})).fit(whole, tiny_loader(24));
    EXPECT_TRUE(torch::equal(resumed.layer->weight, whole.layer->weight));
  }
}

TEST(ModelCheckpoint, WritesNothingInFastDevRun) {
  const TemporaryFolder folder;
  TinyModule module;
  TrainerOptions options = quiet(1, ModelCheckpoint({.dirpath = folder.path(), .save_last = true}));
  options.fast_dev_run = true;
  Trainer(options).fit(module, tiny_loader(24), tiny_loader(16));
  EXPECT_TRUE(folder.names().empty());
}

TEST(ModelCheckpoint, FullDiskIsReportedAndTrainingContinuesWithTheOldFile) {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    at::set_num_threads(1);
    ::signal(SIGXFSZ, SIG_IGN);
    const CapturedConsole console;
    auto callback =
        std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{.dirpath = folder.path(), .save_last = true});
    TinyModule module;
    module.on_training_step = [](int64_t) {};
    TrainerOptions options = quiet(3, {callback});
    Trainer trainer(options);
    int64_t steps = 0;
    module.on_training_step = [&](int64_t) {
      if (++steps != 7) return;  // from the second epoch on, the disk is full
      trainer.finish_checkpoints();
      const rlimit limit{100, 100};
      ::setrlimit(RLIMIT_FSIZE, &limit);
    };
    trainer.fit(module, tiny_loader(24));
    const bool warned = console.has("File too large") && console.has("Training continues");
    ::_exit(trainer.current_epoch() == 3 && warned && base(callback->best_model_path()) == "epoch=0-step=6.ckpt" ? 0
                                                                                                                 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(folder.names(), (Names{"epoch=0-step=6.ckpt", "last.ckpt"}));
  EXPECT_EQ(read_checkpoint(folder / "last.ckpt").get<int64_t>("global_step"), 6);
}

TEST(ModelCheckpoint, OnSaveErrorStopEndsTheRun) {
  const TemporaryFolder folder;
  write_file_durably(folder / "file", "in the way");
  for (const bool async_save : {true, false}) {
    TinyModule module;
    const std::string error = error_of([&] {
      Trainer(quiet(3, ModelCheckpoint({.dirpath = folder / "file/below",
                                        .async_save = async_save,
                                        .on_save_error = OnSaveError::stop})))
          .fit(module, tiny_loader(24));
    });
    EXPECT_TRUE(has(error, folder / "file")) << error;
  }
}

TEST(ModelCheckpoint, SaysBeforeTrainingIfTheFolderCannotTakeTwoCheckpoints) {
  const TemporaryFolder folder;
  write_file_durably(folder / "file", "in the way");
  const CapturedConsole console;
  TinyModule module;
  int64_t steps_when_told = -1;
  module.on_training_step = [&](int64_t) {
    if (steps_when_told < 0) steps_when_told = console.has("file is not a folder") ? 1 : 0;
  };
  Trainer trainer(quiet(1, ModelCheckpoint({.dirpath = folder / "file/below"})));
  EXPECT_THROW(trainer.fit(module, tiny_loader(24)), CheckpointError);
  EXPECT_EQ(steps_when_told, 1) << console.text();
}

TEST(ModelCheckpoint, SaveLastWithTopKWaitsForOneOfTheBest) {
  for (const bool always : {true, false}) {
    const TemporaryFolder folder;
    ModelCheckpointOptions options{.dirpath = folder.path(), .monitor = "v"};
    if (always) options.save_last = true;
    if (!always) options.save_last = "with_top_k";
    TinyModule module;
    module.table = {0.9, 0.4, 0.7};
    Trainer(quiet(3, ModelCheckpoint(options))).fit(module, tiny_loader(24), tiny_loader(8));
    EXPECT_EQ(read_checkpoint(folder / "last.ckpt").get<int64_t>("global_step"), always ? 18 : 12);
  }
}

TEST(CheckpointFolder, KnowsWhatItCannotHold) {
  const TemporaryFolder folder;
  EXPECT_EQ(folder_problem(folder / "not/there/yet", 1000), "");
  EXPECT_TRUE(has(folder_problem(folder / "a/b", uint64_t{1} << 60), "two checkpoints take up to 1048576.0 TiB"));
  write_file_durably(folder / "file", "in the way");
  EXPECT_TRUE(has(folder_problem(folder / "file/a", 1), "is not a folder"));
  EXPECT_EQ(folder.names(), Names{"file"});
}

// ---- options --------------------------------------------------------------------------------------------------------

TEST(ModelCheckpoint, RefusesOptionsThatContradict) {
  EXPECT_TRUE(
      has(error_of([] { ModelCheckpoint({.every_n_train_steps = 5, .every_n_epochs = 1}); }), "exclude each other"));
  EXPECT_TRUE(has(error_of([] { ModelCheckpoint({.save_top_k = 2}); }), "Set .monitor"));
  EXPECT_TRUE(has(error_of([] { ModelCheckpoint({.save_last = "always"}); }), "true, false, link or with_top_k"));
  EXPECT_TRUE(has(error_of([] { ModelCheckpoint({.filename = "{epoch"}); }), "a brace is not closed"));
  EXPECT_TRUE(has(error_of([] { ModelCheckpoint({.filename = "{v:>8}"}); }), ">8"));
}

TEST(CheckpointName, FormatsAsPythonDoes) {
  const Metrics metrics{{"epoch", 3}, {"step", 1200}, {"val/acc", 0.98765}, {"big", 123456789.0}, {"bad", NAN}};
  auto name = [&](const std::string& text, bool insert = false) {
    return CheckpointName(text, insert).format(metrics);
  };
  EXPECT_EQ(name("{epoch}-{step}", true), "epoch=3-step=1200");
  EXPECT_EQ(name("{epoch:02d}_{step:06}"), "03_001200");
  EXPECT_EQ(name("{val/acc:.2f}"), "0.99");
  EXPECT_EQ(name("{val/acc:.1%}"), "98.8%");
  EXPECT_EQ(name("{val/acc:8.3f}"), "   0.988");
  EXPECT_EQ(name("{val/acc}"), "0.98765");
  EXPECT_EQ(name("{big:.3e}"), "1.235e+08");
  EXPECT_EQ(name("{bad:.2f}"), "nan");
  const CapturedConsole console;
  EXPECT_EQ(name("{absent:.1f}"), "nan");
  EXPECT_TRUE(console.has("\"absent\" was not logged; the name shows nan"));
}

}  // namespace
}  // namespace levin::model_checkpoint_test
