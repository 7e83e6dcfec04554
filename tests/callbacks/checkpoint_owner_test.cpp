// A checkpoint file belongs to one callback, and stays its own when the folder is renamed, moved, linked or shared.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/model_checkpoint.h"
#include "levin/callbacks/on_exception_checkpoint.h"
#include "levin/checkpoint/checkpoint_file.h"
#include "levin/core/files/files.h"
#include "support/captured_console.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::checkpoint_owner_test {
namespace {

using namespace test;
namespace fs = std::filesystem;
using Names = std::vector<std::string>;
using Saver = std::shared_ptr<ModelCheckpoint>;

Saver saver(ModelCheckpointOptions options) {
  return std::make_shared<ModelCheckpoint>(std::move(options));
}

// 6 batches an epoch; `table` is the metric "v" of each epoch.
void fit(const Callbacks& callbacks, std::vector<double> table, int64_t epochs, const std::string& ckpt_path = "") {
  TinyModule module;
  module.table = std::move(table);
  Trainer(quiet(epochs, callbacks)).fit(module, tiny_loader(24), tiny_loader(16), ckpt_path);
}

int64_t step_of(const std::string& path) {
  return read_checkpoint(path).get<int64_t>("global_step");
}

Names names_in(const std::string& folder) {
  Names names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// The best is of the first epoch, and the newest of the fourth.
const std::vector<double> kFirstIsBest{0.1, 0.9, 0.8, 0.7};

TEST(CheckpointOwner, TwoCallbacksInOneFolderKeepFilesOfTheirOwn) {
  for (const bool best_first : {true, false}) {
    for (const char* filename : {"", "best", "{epoch}"}) {
      for (const bool counts : {true, false}) {
        SCOPED_TRACE(std::string(filename) + (best_first ? ", best first" : "") + (counts ? ", counter" : ""));
        const TemporaryFolder folder;
        const auto best =
            saver({.dirpath = folder.path(), .filename = filename, .monitor = "v", .enable_version_counter = counts});
        const auto newest = saver({.dirpath = folder.path(), .filename = filename, .enable_version_counter = counts});
        fit(best_first ? Callbacks{best, newest} : Callbacks{newest, best}, kFirstIsBest, 4);
        EXPECT_EQ(step_of(best->best_model_path()), 6);
        EXPECT_EQ(step_of(newest->best_model_path()), 24);
        EXPECT_EQ(folder.names().size(), 2U) << ::testing::PrintToString(folder.names());
      }
    }
  }
}

TEST(CheckpointOwner, ASecondNameIsCountedAsInLightning) {
  const TemporaryFolder folder;
  fit({saver({.dirpath = folder.path(), .filename = "best", .monitor = "v"}),
       saver({.dirpath = folder.path(), .filename = "best"})},
      kFirstIsBest, 4);
  EXPECT_EQ(folder.names(), (Names{"best-v1.ckpt", "best.ckpt"}));
  EXPECT_EQ(step_of(folder / "best.ckpt"), 6);
}

TEST(CheckpointOwner, TwoLinksToOneFolderAreOneFolder) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "real");
  fs::create_directory_symlink("real", folder / "link");
  const auto best = saver({.dirpath = folder / "real", .filename = "x", .monitor = "v"});
  const auto newest = saver({.dirpath = folder / "link", .filename = "x", .enable_version_counter = false});
  fit({best, newest}, kFirstIsBest, 4);
  EXPECT_EQ(step_of(best->best_model_path()), 6);
  EXPECT_EQ(step_of(newest->best_model_path()), 24);
}

TEST(CheckpointOwner, TheNameLastIsForTheNewestState) {
  for (const bool counts : {true, false}) {
    const TemporaryFolder folder;
    const auto both = saver({.dirpath = folder.path(),
                             .filename = "last",
                             .monitor = "v",
                             .save_last = true,
                             .enable_version_counter = counts});
    fit({both}, kFirstIsBest, 4);
    EXPECT_EQ(folder.names(), (Names{"last-v1.ckpt", "last.ckpt"}));
    EXPECT_EQ(step_of(folder / "last.ckpt"), 24);
    EXPECT_EQ(both->last_model_path(), folder / "last.ckpt");
    EXPECT_EQ(step_of(both->best_model_path()), 6);
  }
}

TEST(CheckpointOwner, TheNameInterruptedIsForAStop) {
  const TemporaryFolder folder;
  const auto best = saver({.dirpath = folder.path(), .filename = "interrupted", .monitor = "v"});
  fit({best}, kFirstIsBest, 4);
  EXPECT_EQ(folder.names(), Names{"interrupted-v1.ckpt"});
  EXPECT_EQ(step_of(best->best_model_path()), 6);
}

TEST(CheckpointOwner, AFileOfOnExceptionCheckpointIsItsOwn) {
  const TemporaryFolder folder;
  const auto newest = saver({.dirpath = folder.path(), .filename = "state", .save_last = true});
  fit({OnExceptionCheckpoint({.dirpath = folder.path(), .filename = "state"}), newest}, {}, 2);
  EXPECT_EQ(folder.names(), (Names{"last.ckpt", "state-v1.ckpt"}));
  const auto last = saver({.dirpath = folder.path(), .save_last = true, .save_top_k = 0});
  fit({OnExceptionCheckpoint({.dirpath = folder.path(), .filename = "on"}), last}, {}, 1);
  EXPECT_TRUE(fs::exists(last->last_model_path()));
}

TEST(CheckpointOwner, SavesOfAnExceptionDoNotMeet) {
  const TemporaryFolder folder;
  const auto failing = [&](bool weights_only) {
    return saver({.dirpath = folder.path(),
                  .monitor = weights_only ? "v" : "",
                  .save_on_exception = true,
                  .save_weights_only = weights_only});
  };
  TinyModule module;
  module.on_training_step = [](int64_t batch) {
    if (batch == 3) throw Error("power cut");
  };
  Trainer trainer(quiet(1, {failing(false), failing(true)}));
  EXPECT_NE(error_of([&] { trainer.fit(module, tiny_loader(24)); }), "");
  EXPECT_EQ(folder.names(), (Names{"epoch=0-step=3-v1.ckpt", "epoch=0-step=3.ckpt"}));
  EXPECT_FALSE(read_checkpoint(folder / "epoch=0-step=3.ckpt").get<bool>("weights_only"));
  EXPECT_TRUE(read_checkpoint(folder / "epoch=0-step=3-v1.ckpt").get<bool>("weights_only"));
}

// ---- folders that change
// ---------------------------------------------------------------------------------------------

Saver best_and_last(const std::string& folder, bool weights_only = false) {
  return saver({.dirpath = folder, .monitor = "v", .save_last = true, .save_weights_only = weights_only});
}

TEST(CheckpointOwner, ARenamedFolderIsContinued) {
  const TemporaryFolder folder;
  const std::vector<double> table{0.9, 0.4, 0.5, 0.3, 0.2};
  fit({best_and_last(folder / "a")}, table, 2);
  fs::rename(folder / "a", folder / "b");
  const CapturedConsole console;
  const auto second = best_and_last(folder / "b");
  fit({second}, table, 3, folder / "b/last.ckpt");
  EXPECT_EQ(names_in(folder / "b"), (Names{"epoch=1-step=12.ckpt", "last.ckpt"}));
  EXPECT_EQ(second->best_model_path(), folder / "b/epoch=1-step=12.ckpt");
  EXPECT_EQ(second->best_model_score(), 0.4);
  fs::rename(folder / "b", folder / "c");  // its best file names the folder a, and last.ckpt the folder b
  fit({best_and_last(folder / "c")}, table, 4, folder / "c/last.ckpt");
  EXPECT_EQ(names_in(folder / "c"), (Names{"epoch=3-step=24.ckpt", "last.ckpt"}));
  fs::rename(folder / "c", folder / "a");
  fit({best_and_last(folder / "a")}, table, 5, folder / "a/last.ckpt");
  EXPECT_EQ(names_in(folder / "a"), (Names{"epoch=4-step=30.ckpt", "last.ckpt"}));
  EXPECT_FALSE(console.has("warning")) << console.text();
}

TEST(CheckpointOwner, ARenamedFolderWithFilesOfWeightsIsContinued) {
  const TemporaryFolder folder;
  const auto savers = [&](const std::string& name) {
    return Callbacks{
        saver({.dirpath = folder / name, .filename = "w-{epoch}", .monitor = "v", .save_weights_only = true}),
        saver({.dirpath = folder / name, .filename = "state"})};
  };
  fit(savers("a"), {0.9, 0.4}, 2);
  fs::rename(folder / "a", folder / "b");
  fit(savers("b"), {0.9, 0.4, 0.3}, 3, folder / "b/state.ckpt");
  EXPECT_EQ(names_in(folder / "b"), (Names{"state.ckpt", "w-epoch=2.ckpt"}));
}

TEST(CheckpointOwner, AFolderReachedByALinkIsContinued) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "real");
  fs::create_directory_symlink("real", folder / "link");
  fit({best_and_last(folder / "link")}, {0.9, 0.4}, 2);
  const auto second = best_and_last(folder / "real");
  fit({second}, {0.9, 0.4, 0.3}, 3, folder / "real/last.ckpt");
  EXPECT_EQ(names_in(folder / "real"), (Names{"epoch=2-step=18.ckpt", "last.ckpt"}));
  const auto third = best_and_last(folder / "link");
  fit({third}, {0.9, 0.4, 0.3, 0.2}, 4, folder / "link/last.ckpt");
  EXPECT_EQ(names_in(folder / "real"), (Names{"epoch=3-step=24.ckpt", "last.ckpt"}));
}

// A run's files are not known by their names alone: another run's files have the same names.
TEST(CheckpointOwner, ACopyInTheFolderOfAnotherRunClaimsNoneOfItsFiles) {
  for (const bool first_is_gone : {false, true}) {
    const TemporaryFolder folder;
    fit({best_and_last(folder / "a")}, {0.9, 0.4}, 2);
    fit({best_and_last(folder / "b")}, {0.9, 0.4}, 2);
    fs::copy_file(folder / "a/last.ckpt", folder / "b/from_a.ckpt");
    if (first_is_gone) fs::remove_all(folder / "a");
    const std::string best = read_file(folder / "b/epoch=1-step=12.ckpt"), last = read_file(folder / "b/last.ckpt");
    fit({best_and_last(folder / "b")}, {0.9, 0.4, 0.3}, 3, folder / "b/from_a.ckpt");
    EXPECT_EQ(read_file(folder / "b/epoch=1-step=12.ckpt"), best);
    EXPECT_EQ(read_file(folder / "b/last.ckpt"), last);
    EXPECT_EQ(names_in(folder / "b"),
              (Names{"epoch=1-step=12.ckpt", "epoch=2-step=18.ckpt", "from_a.ckpt", "last-v1.ckpt", "last.ckpt"}));
  }
}

TEST(CheckpointOwner, TheBestOfADifferentFolderStaysTheBestUntilOneIsBetter) {
  const TemporaryFolder folder;
  const std::vector<double> table{0.9, 0.4, 0.5, 0.6, 0.3};
  fit({best_and_last(folder / "a")}, table, 2);
  const auto second = best_and_last(folder / "b");
  fit({second}, table, 3, folder / "a/last.ckpt");
  EXPECT_EQ(second->best_model_path(), folder / "a/epoch=1-step=12.ckpt");
  EXPECT_EQ(second->best_model_score(), 0.4);
  const auto third = best_and_last(folder / "b");
  fit({third}, table, 4, folder / "b/last.ckpt");
  EXPECT_EQ(third->best_model_path(), folder / "a/epoch=1-step=12.ckpt");
  const auto fourth = best_and_last(folder / "b");
  fit({fourth}, table, 5, folder / "b/last.ckpt");
  EXPECT_EQ(fourth->best_model_path(), folder / "b/epoch=4-step=30.ckpt");
  EXPECT_EQ(fourth->best_model_score(), 0.3);
  EXPECT_EQ(names_in(folder / "a"), (Names{"epoch=1-step=12.ckpt", "last.ckpt"}));
}

TEST(CheckpointOwner, TheBestOfAMovedFolderIsRememberedWhereItIsNow) {
  const TemporaryFolder folder;
  fit({best_and_last(folder / "a")}, {0.4, 0.9}, 2);
  fs::rename(folder / "a", folder / "moved");
  const auto second = best_and_last(folder / "b");
  fit({second}, {0.4, 0.9, 0.8}, 3, folder / "moved/last.ckpt");
  EXPECT_EQ(second->best_model_path(), folder / "moved/epoch=0-step=6.ckpt");
}

// ---- names
// -----------------------------------------------------------------------------------------------------------

TEST(CheckpointOwner, ASubfolderThatLosesItsLastFileGoes) {
  const TemporaryFolder folder;
  fit({saver({.dirpath = folder.path(), .filename = "{epoch}/state"})}, {}, 3);
  EXPECT_EQ(folder.names(), Names{"epoch=2"});
  EXPECT_EQ(names_in(folder / "epoch=2"), Names{"state.ckpt"});
}

TEST(CheckpointOwner, AMetricsNameMakesNoFolder) {
  const Metrics metrics{{"val/acc", 0.5}, {"../up", 1}, {"a\nb", 2}};
  EXPECT_EQ(CheckpointName("{val/acc:.2f}", true).format(metrics), "val_acc=0.50");
  EXPECT_EQ(CheckpointName("{../up}", true).format(metrics), ".._up=1.0");
  EXPECT_EQ(CheckpointName("{a\nb}", true).format(metrics), "a_b=2.0");
  EXPECT_EQ(CheckpointName("{val/acc:.2f}", false).format(metrics), "0.50");
  EXPECT_EQ(CheckpointName("val/{val/acc:.2f}", false).format(metrics), "val/0.50");
}

TEST(CheckpointOwner, AFilenameOutsideTheFolderIsRefused) {
  for (const char* filename : {"../a", "/tmp/a", "a//b", "a/", "a/../../b", "a\nb"}) {
    const std::string error = error_of([&] { (void)saver({.filename = filename}); });
    EXPECT_TRUE(has(error, "ModelCheckpointOptions.filename") && has(error, "below dirpath")) << filename << error;
  }
}

// ---- the checkpoint of a stop
// ----------------------------------------------------------------------------------------

// It is the only state that the run can continue from.
TEST(CheckpointOwner, AFileOfWeightsDoesNotReplaceTheCheckpointOfAStop) {
  const TemporaryFolder folder;
  const auto train = [&](int64_t signal_at, int64_t fail_at) {
    TinyModule module;
    module.on_training_step = [&](int64_t) {
      if (module.global_step() == signal_at) std::raise(SIGINT);
      if (module.global_step() == fail_at) throw Error("power cut");
    };
    TrainerOptions options = quiet(3, {saver({.dirpath = folder / "ck", .save_weights_only = true})}, folder.path());
    options.auto_resume = true;
    Trainer trainer(options);
    return error_of([&] { trainer.fit(module, tiny_loader(24)); });
  };
  const CapturedConsole console;
  EXPECT_TRUE(has(train(2, -1), "stopped by"));
  EXPECT_TRUE(has(train(-1, 8), "power cut"));
  EXPECT_TRUE(console.has("continuing from " + folder / "ck/interrupted.ckpt")) << console.text();
  EXPECT_EQ(names_in(folder / "ck"), (Names{"epoch=0-step=6.ckpt", "interrupted.ckpt"}));
}

// Weights that were saved after the newest whole checkpoint are saved again, under the same name.
TEST(CheckpointOwner, AKilledRunLeavesNoSecondFileOfWeights) {
  for (const bool shared : {false, true}) {
    const TemporaryFolder folder;
    const auto train = [&](int64_t fail_at) {
      TinyModule module;
      module.on_training_step = [&](int64_t) {
        if (module.global_step() == fail_at) throw Error("power cut");
      };
      const auto whole = saver({.dirpath = folder / "ck", .every_n_train_steps = 4});
      const auto weights = saver(
          {.dirpath = folder / "ck", .filename = "small-{epoch}", .save_weights_only = true, .every_n_train_steps = 3});
      TrainerOptions options = quiet(2, {whole, weights}, folder.path());
      options.auto_resume = true;
      Trainer trainer(options);
      (void)error_of([&] { trainer.fit(module, tiny_loader(24)); });
      return weights->best_model_path();
    };
    const CapturedConsole console;
    (void)train(7);  // whole until step 4, weights until step 6
    EXPECT_EQ(names_in(folder / "ck"), (Names{"epoch=0-step=4.ckpt", "small-epoch=0.ckpt"}));
    if (shared) write_file_durably(folder / "ck/small-epoch=1.ckpt", "of a different program");
    const std::string newest = train(-1);
    EXPECT_EQ(newest, folder / (shared ? "ck/small-epoch=1-v1.ckpt" : "ck/small-epoch=1.ckpt"));
    EXPECT_EQ(step_of(newest), 12);
    EXPECT_FALSE(fs::exists(folder / "ck/small-epoch=0.ckpt"));
    EXPECT_FALSE(fs::exists(folder / "ck/small-epoch=0-v1.ckpt"));
  }
}

// The killed start has left weights, and nothing to continue from. In a folder that other runs may use they stay.
TEST(CheckpointOwner, ARunThatStartsOverWritesItsWeightsAgain) {
  for (const bool in_log_folder : {true, false}) {
    const TemporaryFolder folder;
    const std::string saved = folder / (in_log_folder ? "runs/ck" : "ck");
    const auto train = [&](int64_t fail_at) {
      TinyModule module;
      module.on_training_step = [&](int64_t) {
        if (module.global_step() == fail_at) throw Error("power cut");
      };
      const auto whole = saver({.dirpath = saved, .every_n_train_steps = 4});
      const auto weights =
          saver({.dirpath = saved, .filename = "small-{epoch}", .save_weights_only = true, .every_n_train_steps = 3});
      TrainerOptions options = quiet(2, {whole, weights}, folder / "runs");
      options.auto_resume = true;
      Trainer trainer(options);
      (void)error_of([&] { trainer.fit(module, tiny_loader(24)); });
    };
    const CapturedConsole console;
    train(3);
    EXPECT_EQ(names_in(saved), (Names{"small-epoch=0.ckpt"}));
    train(-1);
    const Names expected = in_log_folder ? Names{"epoch=1-step=12.ckpt", "small-epoch=1.ckpt"}
                                         : Names{"epoch=1-step=12.ckpt", "small-epoch=0.ckpt", "small-epoch=1.ckpt"};
    EXPECT_EQ(names_in(saved), expected) << in_log_folder;
  }
}

}  // namespace
}  // namespace levin::checkpoint_owner_test
