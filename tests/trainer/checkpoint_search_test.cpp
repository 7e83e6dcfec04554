// Which checkpoint a run starts from: a run that resumes finds what it has saved or logs why it starts over, and
// keywords and folders for ckpt_path find a checkpoint of the same model.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/core/files/files.h"
#include "levin/levin.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::checkpoint_search_test {
namespace {

namespace fs = std::filesystem;
using test::CapturedConsole;
using test::error_of;
using test::has;
using test::holds;
using test::TemporaryFolder;
using test::tiny_loader;
using test::TinyModule;

// Logs a metric with a slash in its name: its validations see 0.5, 0.4, …, so that the newest is the best.
class Slashed : public TinyModule {
 public:
  explicit Slashed(double by = -0.1) : by_(by) {}
  void validation_step(const Batch&, int64_t) override {
    log("val/loss", 0.5 + by_ * static_cast<double>(current_epoch()));
  }

 private:
  double by_;
};

// Has the weights of TinyModule and others.
class Wide : public TinyModule {
 public:
  Wide() { register_module("more", torch::nn::Linear(4, 3)); }
};

TrainerOptions options(const TemporaryFolder& folder, int64_t epochs, Callbacks callbacks, bool auto_resume = false) {
  TrainerOptions options;
  options.max_epochs = epochs;
  options.callbacks = std::move(callbacks);
  options.num_sanity_val_steps = 0;
  options.log_every_n_steps = 1;
  options.enable_progress_bar = false;
  options.enable_model_summary = false;
  options.default_root_dir = folder.path();
  options.auto_resume = auto_resume;
  return options;
}

// Fits 2 batches an epoch; returns the output.
std::string fit(LightningModule& module, TrainerOptions options, const std::string& ckpt_path = "") {
  const CapturedConsole console;
  Trainer(std::move(options)).fit(module, tiny_loader(8), tiny_loader(4), ckpt_path);
  return console.text();
}

const std::string kRun = "levin_logs/version_0";

std::vector<std::string> epochs_in_csv(const TemporaryFolder& folder) {
  std::ifstream file(folder / kRun + "/metrics.csv");
  std::vector<std::string> epochs;
  std::string line;
  std::getline(file, line);
  const auto columns = [](const std::string& row) {
    std::vector<std::string> cells(1);
    for (const char c : row) {
      if (c == ',') cells.emplace_back();
      if (c != ',') cells.back() += c;
    }
    return cells;
  };
  const auto names = columns(line);
  const auto epoch = std::find(names.begin(), names.end(), "epoch") - names.begin();
  const auto loss = std::find(names.begin(), names.end(), "val/loss") - names.begin();
  while (std::getline(file, line)) {
    const auto cells = columns(line);
    if (!cells.at(static_cast<size_t>(loss)).empty()) epochs.push_back(cells.at(static_cast<size_t>(epoch)));
  }
  return epochs;
}

TEST(CheckpointSearch, ARunWithAMetricsSlashInItsNamesIsContinued) {
  // The metric's own name; a subfolder that the user wrote.
  for (const auto& [filename, first, last] :
       {std::tuple("{epoch}-{val/loss:.2f}", "epoch=2-val_loss=0.30.ckpt", "epoch=4-val_loss=0.10.ckpt"),
        std::tuple("val/{epoch}", "val/epoch=2.ckpt", "val/epoch=4.ckpt")}) {
    SCOPED_TRACE(filename);
    const TemporaryFolder folder;
    const std::string checkpoints = folder / kRun + "/checkpoints/";
    const auto savers = [name = std::string(filename)] {
      return Callbacks{ModelCheckpoint({.filename = name, .monitor = "val/loss"})};
    };
    Slashed one, two, three;
    fit(one, options(folder, 3, savers(), true));
    EXPECT_TRUE(fs::exists(checkpoints + first));
    const std::string output = fit(two, options(folder, 5, savers(), true));
    EXPECT_TRUE(holds(output, {"auto_resume: continuing from " + checkpoints + first}));
    EXPECT_EQ(epochs_in_csv(folder), (std::vector<std::string>{"0", "1", "2", "3", "4"}));
    size_t entries = 0;
    for ([[maybe_unused]] const auto& each : fs::recursive_directory_iterator(checkpoints)) ++entries;
    EXPECT_EQ(entries, std::string(last).find('/') == std::string::npos ? 1U : 2U) << "an empty folder is left";
    for (const char* word : {"best", "last"}) {
      Trainer trainer(options(folder, 5, savers()));
      trainer.test(three, tiny_loader(4), word);
      EXPECT_EQ(trainer.ckpt_path(), checkpoints + last);
    }
  }
}

TEST(CheckpointSearch, TheNewestOfAllCallbacksFoldersIsContinued) {
  const TemporaryFolder folder;
  const auto savers = [&] {
    return Callbacks{ModelCheckpoint({.dirpath = folder / "best", .monitor = "val/loss"}),
                     ModelCheckpoint({.dirpath = folder / "newest"})};
  };
  Slashed one(0.1), two(0.1);  // the best is of epoch 0
  fit(one, options(folder, 3, savers(), true));
  EXPECT_TRUE(holds(fit(two, options(folder, 4, savers(), true)),
                    {"continuing from " + folder / "newest/epoch=2-step=6.ckpt"}));
}

TEST(CheckpointSearch, WhatTheRunsFolderHoldsIsContinuedThoughCallbacksSaveElsewhereNow) {
  for (const bool drops_callback : {false, true}) {
    const TemporaryFolder folder;
    Slashed one, two;
    fit(one, options(folder, 2, {ModelCheckpoint()}, true));
    TrainerOptions other = options(folder, 3, {}, true);
    if (drops_callback) other.enable_checkpointing = false;
    if (!drops_callback) other.callbacks = {ModelCheckpoint({.dirpath = folder / "elsewhere"})};
    EXPECT_TRUE(holds(fit(two, other), {"continuing from " + folder / kRun + "/checkpoints/epoch=1-step=4.ckpt"}));
    EXPECT_EQ(epochs_in_csv(folder), (std::vector<std::string>{"0", "1", "2"}));
  }
}

TEST(CheckpointSearch, WhatTheRunHasSavedOutsideOfItsFolderIsContinued) {
  const TemporaryFolder folder, elsewhere;
  Slashed one, two;
  fit(one, options(folder, 2, {ModelCheckpoint({.dirpath = elsewhere / "a"})}, true));
  EXPECT_TRUE(holds(fit(two, options(folder, 3, {ModelCheckpoint()}, true)),
                    {"auto_resume: continuing from " + elsewhere / "a/epoch=1-step=4.ckpt"}));
  EXPECT_EQ(epochs_in_csv(folder), (std::vector<std::string>{"0", "1", "2"}));
}

// If no logger has a folder, the run to continue is unknown: the user must name it.
TEST(CheckpointSearch, WithoutALogFolderNothingBelowTheRootIsStartedOver) {
  for (const char* first : {"none", "sqlite", "csv"}) {
    SCOPED_TRACE(first);
    const TemporaryFolder folder;
    const bool has_csv = first == std::string("csv");
    const auto without = [&](TrainerOptions options) {
      if (first == std::string("sqlite")) options.logger = SQLiteLogger({.path = folder / "runs.sqlite"});
      if (first != std::string("sqlite")) options.logger = false;
      return options;
    };
    Slashed one, two, three, again, four;
    Wide other;
    const TrainerOptions begins = options(folder, 2, {ModelCheckpoint({.dirpath = folder / "a"})}, true);
    fit(one, has_csv ? options(folder, 2, {ModelCheckpoint()}, true) : without(begins));
    const std::string saved = folder / (has_csv ? kRun + "/checkpoints" : "a") + "/epoch=1-step=4.ckpt";
    const auto moved = [&] { return without(options(folder, 3, {ModelCheckpoint({.dirpath = folder / "b"})}, true)); };
    EXPECT_TRUE(holds(error_of<CheckpointError>([&] { (void)fit(two, moved()); }),
                      {"auto_resume: no logger of this run keeps a folder", folder / "b", saved, "Name it as ckpt_path",
                       "default_root_dir"}));
    EXPECT_EQ(fit(other, moved()).find("auto_resume"), std::string::npos) << "it is of another model";
    fs::remove_all(folder / "b");
    Trainer named(moved());
    named.fit(three, tiny_loader(8), tiny_loader(4), saved);
    EXPECT_EQ(named.global_step(), 6);
    EXPECT_TRUE(holds(fit(again, moved()), {"auto_resume: continuing from " + folder / "b/epoch=2-step=6.ckpt"}));
    fs::remove_all(folder / "b");
    TrainerOptions fresh = moved();
    fresh.auto_resume = false;
    Trainer anew(fresh);
    anew.fit(four, tiny_loader(8), tiny_loader(4));
    EXPECT_EQ(anew.global_step(), 6);
  }
}

TEST(CheckpointSearch, ARunThatStartsOverReportsIt) {
  const TemporaryFolder folder;
  Slashed one, two;
  const auto weights = [] { return Callbacks{ModelCheckpoint({.save_weights_only = true})}; };
  EXPECT_FALSE(has(fit(one, options(folder, 1, weights(), true)), "from the beginning"));
  EXPECT_TRUE(holds(fit(two, options(folder, 2, weights(), true)),
                    {"warning: auto_resume: " + folder / kRun, "no checkpoint with the state of the run",
                     "starts from the beginning"}));
}

TEST(CheckpointSearch, AnEvaluationTakesTheNewestWeightsWhereThereIsNothingElse) {
  const TemporaryFolder folder;
  Slashed module, again;
  fit(module, options(folder, 3, {ModelCheckpoint({.save_top_k = -1, .save_weights_only = true})}));
  const std::string newest = folder / kRun + "/checkpoints/epoch=2-step=6.ckpt";
  for (const std::string& place : {std::string("last"), folder / kRun}) {
    Trainer trainer(options(folder, 3, {ModelCheckpoint()}));
    trainer.test(again, tiny_loader(4), place);
    EXPECT_EQ(trainer.ckpt_path(), newest);
  }
  Trainer trainer(options(folder, 3, {ModelCheckpoint()}));
  EXPECT_TRUE(holds(error_of<CheckpointError>([&] { trainer.test(again, tiny_loader(4), "best"); }),
                    {"\"best\" was asked for", newest, "names no best one", "weights alone"}));
  EXPECT_TRUE(
      holds(error_of<CheckpointError>([&] { trainer.fit(again, tiny_loader(8), tiny_loader(4), folder / kRun); }),
            {"holds no checkpoint with the state of a run"}));
}

TEST(CheckpointSearch, WhatCannotBeContinuedExactlyIsNotStartedOver) {
  const TemporaryFolder folder;
  Slashed one, two;
  fit(one, options(folder, 1, {ModelCheckpoint()}, true));
  const std::string path = folder / kRun + "/checkpoints/epoch=0-step=2.ckpt";
  State saved = read_checkpoint(path);
  std::erase_if(saved.tensors, [](const auto& item) { return item.first.starts_with("rng."); });
  write_checkpoint(path, saved);
  const std::string rows = read_file(folder / kRun + "/metrics.csv");
  const CapturedConsole console;
  EXPECT_TRUE(holds(error_of<CheckpointError>([&] {
                      Trainer(options(folder, 2, {ModelCheckpoint()}, true)).fit(two, tiny_loader(8), tiny_loader(4));
                    }),
                    {"auto_resume: there is no other checkpoint", path, "Name it as ckpt_path"}));
  EXPECT_EQ(read_file(folder / kRun + "/metrics.csv"), rows);
}

// ---- keywords and folders
// -----------------------------------------------------------------------------------------------

TEST(CheckpointSearch, RunsOfOtherModelsArePassedOver) {
  for (const char* word : {"best", "last"}) {
    const TemporaryFolder folder;
    TinyModule mine, again;
    Wide other, others;
    fit(mine, options(folder, 1, {ModelCheckpoint()}));
    fit(other, options(folder, 1, {ModelCheckpoint()}));
    const CapturedConsole console;
    Trainer trainer(options(folder, 1, {ModelCheckpoint()}));
    trainer.test(again, tiny_loader(4), word);
    EXPECT_EQ(trainer.ckpt_path(), folder / kRun + "/checkpoints/epoch=0-step=2.ckpt");
    EXPECT_TRUE(
        console.has("version_1/checkpoints/epoch=0-step=2.ckpt is of another model: it is of Wide, and this "
                    "run's model is TinyModule. An earlier run is looked for."))
        << console.text();
    fs::remove_all(folder / "levin_logs/version_0");
    Trainer without(options(folder, 1, {ModelCheckpoint()}));
    EXPECT_TRUE(holds(error_of<CheckpointError>([&] { without.test(again, tiny_loader(4), word); }),
                      {word, "there is no checkpoint of this model", "version_1", "Wide", "TinyModule"}));
  }
}

// A different class with the same weights.
class Twin : public TinyModule {};

TEST(CheckpointSearch, AModelOfADifferentClassWithTheSameWeightsIsADifferentModel) {
  for (const char* word : {"best", "last"}) {
    const TemporaryFolder folder;
    TinyModule mine, again;
    Twin twin;
    fit(mine, options(folder, 1, {ModelCheckpoint()}));
    fit(twin, options(folder, 1, {ModelCheckpoint()}));
    const CapturedConsole console;
    Trainer trainer(options(folder, 1, {ModelCheckpoint()}));
    trainer.test(again, tiny_loader(4), word);
    EXPECT_EQ(trainer.ckpt_path(), folder / kRun + "/checkpoints/epoch=0-step=2.ckpt");
    EXPECT_TRUE(
        console.has("version_1/checkpoints/epoch=0-step=2.ckpt is of another model: it is of Twin, and this run's "
                    "model is TinyModule. An earlier run is looked for."))
        << console.text();
    fs::remove_all(folder / "levin_logs/version_0");
    Trainer without(options(folder, 1, {ModelCheckpoint()}));
    EXPECT_TRUE(
        holds(error_of<CheckpointError>([&] { without.test(again, tiny_loader(4), word); }),
              {word, "there is no checkpoint of this model", "version_1", "Twin", "TinyModule", "Give a path"}));
    again.set_strict_loading(false);  // any weights that fit
    without.test(again, tiny_loader(4), word);
    EXPECT_TRUE(has(without.ckpt_path(), "version_1")) << without.ckpt_path();
  }
}

TEST(CheckpointSearch, WhatIsNamedMayBeOfADifferentClassWhichIsReported) {
  const TemporaryFolder folder;
  Twin twin;
  fit(twin, options(folder, 1, {ModelCheckpoint()}));
  const std::string path = folder / kRun + "/checkpoints/epoch=0-step=2.ckpt";
  for (const std::string& place : {path, folder / kRun}) {
    const CapturedConsole console;
    TinyModule module;
    Trainer(options(folder, 1, {ModelCheckpoint()})).test(module, tiny_loader(4), place);
    EXPECT_TRUE(torch::equal(module.layer->weight, twin.layer->weight));
    EXPECT_TRUE(console.has(path + ": it is of Twin, and this run's model is TinyModule. The weights have the same "
                                   "names and shapes, so they are loaded."))
        << console.text();
    Twin same;
    const CapturedConsole silent;
    Trainer(options(folder, 1, {ModelCheckpoint()})).test(same, tiny_loader(4), place);
    EXPECT_FALSE(silent.has("it is of")) << silent.text();
  }
}

// A module whose size is an option.
class Sized : public LightningModule {
 public:
  struct Options {
    int64_t layers = 1;
    static auto fields() { return levin::fields(field("layers", &Options::layers, "how many")); }
  };
  explicit Sized(int64_t layers) {
    for (int64_t k = 0; k < layers; ++k) register_module("l" + std::to_string(k), torch::nn::Linear(4, 4));
    register_module("out", out);
    save_hyperparameters(Options{layers});
  }
  at::Tensor training_step(const Batch& batch, int64_t) override {
    return torch::mse_loss(out->forward(batch[0]), batch[1]);
  }
  void test_step(const Batch&, int64_t) override {}
  OptimizerConfig configure_optimizers() override { return SGD(out->parameters(), {.lr = 0.1}); }

  torch::nn::Linear out{4, 1};
};

TEST(CheckpointSearch, AModelOfTheSameClassWithOtherOptionsIsADifferentModel) {
  const TemporaryFolder folder;
  Sized two(2), forty(40), again(2);
  const auto train = [&](Sized& module) {
    Trainer(options(folder, 1, {ModelCheckpoint()})).fit(module, tiny_loader(8));
  };
  train(forty);
  train(two);
  const CapturedConsole console;
  Trainer trainer(options(folder, 1, {ModelCheckpoint()}));
  trainer.test(again, tiny_loader(4), "best");
  EXPECT_TRUE(has(trainer.ckpt_path(), "version_1")) << trainer.ckpt_path();
  Sized large(40);
  Trainer other(options(folder, 1, {ModelCheckpoint()}));
  other.test(large, tiny_loader(4), "best");
  EXPECT_TRUE(has(other.ckpt_path(), "version_0")) << other.ckpt_path();
  EXPECT_TRUE(console.has("it is of a Sized with other options: missing l10.bias (4), missing l10.weight (4, 4)"))
      << console.text();
}

TEST(CheckpointSearch, ANamedFileOfADifferentModelIsRefusedInAFewLines) {
  const TemporaryFolder folder;
  Sized forty(40);
  TinyModule tiny;
  Trainer(options(folder, 1, {ModelCheckpoint()})).fit(forty, tiny_loader(8));
  const std::string path = folder / kRun + "/checkpoints/epoch=0-step=2.ckpt";
  Trainer trainer(options(folder, 1, {}));
  const std::string error = error_of<CheckpointError>([&] { trainer.test(tiny, tiny_loader(4), path); });
  EXPECT_TRUE(holds(error, {path + ": its weights do not fit the module (it is of Sized, and this run's model is "
                                   "TinyModule): missing layer.bias (1)",
                            "and 78 more", "set_strict_loading(false)"}));
  EXPECT_LT(error.size(), 800U);
}

TEST(CheckpointSearch, ARunsFolderIsAPlaceToStartFrom) {
  const TemporaryFolder folder;
  Slashed module(0.1), again(0.1);  // the best is of epoch 0, the newest of epoch 2
  const Callbacks savers{ModelCheckpoint({.monitor = "val/loss", .save_last = true})};
  fit(module, options(folder, 3, savers));
  fs::rename(folder / kRun, folder / "moved");
  for (const std::string& place : {folder / "moved", folder / "moved/checkpoints/", folder / "moved/"}) {
    Trainer evaluates(options(folder, 3, {ModelCheckpoint()}));
    evaluates.test(again, tiny_loader(4), place);
    EXPECT_TRUE(fs::equivalent(evaluates.ckpt_path(), folder / "moved/checkpoints/epoch=0-step=2.ckpt")) << place;
  }
  Trainer trains(options(folder, 4, {ModelCheckpoint()}));
  const CapturedConsole console;
  trains.fit(again, tiny_loader(8), tiny_loader(4), folder / "moved");
  EXPECT_EQ(trains.global_step(), 8);
  EXPECT_TRUE(fs::exists(folder / "moved/checkpoints/last.ckpt"));
  fs::create_directories(folder / "empty");
  Trainer none(options(folder, 4, {}));
  EXPECT_TRUE(holds(error_of<CheckpointError>([&] { none.test(again, tiny_loader(4), folder / "empty"); }),
                    {"ckpt_path: the folder " + folder / "empty", "holds no checkpoint"}));
}

// The best is known from the checkpoints, with other callbacks too, and where a run has been moved.
TEST(CheckpointSearch, BestIsFoundWithOtherCallbacksAndInAMovedFolder) {
  const TemporaryFolder folder;
  Slashed module(0.1), again(0.1);
  fit(module, options(folder, 3, {ModelCheckpoint({.monitor = "val/loss", .save_last = true})}));
  fs::rename(folder / "levin_logs", folder / "moved");
  fs::create_directory(folder / "root");
  fs::rename(folder / "moved", folder / "root/levin_logs");
  TrainerOptions other = options(folder, 3, {ModelCheckpoint()});
  other.default_root_dir = folder / "root";
  Trainer trainer(other);
  trainer.test(again, tiny_loader(4), "best");
  EXPECT_EQ(trainer.ckpt_path(), folder / "root" + "/levin_logs/version_0/checkpoints/epoch=0-step=2.ckpt");
}

// ---- saves at the end
// ------------------------------------------------------------------------------------------------

TEST(CheckpointSearch, SavesInTheLastHooksAreWholeAndNoneIsLost) {
  struct Saving : TinyModule {
    void on_fit_end() override { trainer().save_checkpoint(folder / "fit_end.ckpt"); }
    void teardown(Stage stage) override {
      trainer().save_checkpoint(folder / (enum_name(stage) + ".ckpt"));
      trainer().request_checkpoint(CheckpointRequest{folder / (enum_name(stage) + "-requested.ckpt")});
    }
    TemporaryFolder folder;
  };
  for (const bool trains : {true, false}) {
    Saving module;
    TrainerOptions with = options(module.folder, 2, {});
    with.enable_checkpointing = false;
    if (!trains) with.limit_train_batches = int64_t{0};
    Trainer trainer(with);
    trainer.fit(module, tiny_loader(8));
    (void)trainer.test(module, tiny_loader(4));
    for (const char* name : {"fit_end.ckpt", "fit.ckpt", "fit-requested.ckpt", "test.ckpt", "test-requested.ckpt"}) {
      EXPECT_EQ(read_checkpoint(module.folder / name).get<int64_t>("global_step"), trains ? 4 : 0) << name;
    }
    TinyModule resumed;
    Trainer(options(module.folder, 3, {})).fit(resumed, tiny_loader(8), {}, module.folder / "fit-requested.ckpt");
  }
}

TEST(CheckpointSearch, ARequestOutsideOfARunIsWritten) {
  const TemporaryFolder folder;
  auto module = std::make_unique<TinyModule>();
  Trainer trainer(options(folder, 2, {}));
  const auto request = [&] { trainer.request_checkpoint(CheckpointRequest{folder / "new/after.ckpt"}); };
  EXPECT_TRUE(holds(error_of<Error>(request), {"request_checkpoint: there is no module yet", "Call fit"}));
  trainer.fit(*module, tiny_loader(8));
  request();
  trainer.finish_checkpoints();
  EXPECT_EQ(read_checkpoint(folder / "new/after.ckpt").get<int64_t>("global_step"), 4);
  write_file_durably(folder / "file", std::string("in the way"));
  {
    const CapturedConsole console;
    trainer.request_checkpoint(CheckpointRequest{folder / "file/after.ckpt"});
    trainer.finish_checkpoints();
    EXPECT_TRUE(console.has("cannot create the folder " + folder / "file: Not a directory")) << console.text();
  }
  module.reset();
  EXPECT_TRUE(holds(error_of<Error>(request), {"request_checkpoint: the module", "was destroyed", "Call fit"}));
  EXPECT_TRUE(holds(error_of<Error>([&] { trainer.save_checkpoint(folder / "gone.ckpt"); }),
                    {"save_checkpoint: the module", "was destroyed"}));
  EXPECT_TRUE(holds(error_of<Error>([&] { trainer.optimizers().at(0).step(); }),
                    {"SGD: step() calls hooks of its module, which was destroyed", "optimizer().step()"}));
}

TEST(CheckpointSearch, ARequestWithoutAFolderIsWrittenIntoTheWorkingDirectory) {
  struct Asks : TinyModule {
    void on_train_end() override { trainer().request_checkpoint({"bare.ckpt"}); }
  };
  const TemporaryFolder folder;
  Asks module;
  Trainer trainer(options(folder, 2, {}));
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  const std::string error = error_of<Error>([&] { trainer.fit(module, tiny_loader(8)); });
  fs::current_path(before);
  EXPECT_EQ(error, "");
  EXPECT_EQ(read_checkpoint(folder / "bare.ckpt").get<int64_t>("global_step"), 4);
}

TEST(CheckpointSearch, TheSizeOfACheckpointNeedsAModule) {
  const TemporaryFolder folder;
  TinyModule module;
  Trainer trainer(options(folder, 1, {}));
  EXPECT_TRUE(holds(error_of<Error>([&] { (void)trainer.estimated_checkpoint_bytes(); }),
                    {"estimated_checkpoint_bytes", "no module yet", "Call fit"}));
  EXPECT_TRUE(holds(error_of<Error>([&] { (void)held_memory(trainer); }), {"held_memory", "no module", "in a fit"}));
  trainer.fit(module, tiny_loader(8));
  EXPECT_EQ(trainer.estimated_checkpoint_bytes(), 3U * 5U * 4U);  // 5 weights in float32, and two numbers for each
}

TEST(CheckpointSearch, AsksACheckpointCallbackOfTheUserForTheBest) {
  struct AtEnd : Checkpoint {
    explicit AtEnd(std::string file) : path(std::move(file)) {}
    void on_train_end(Trainer& trainer, LightningModule&) override { trainer.save_checkpoint(path); }
    std::string checkpoint_path(Trainer&, const std::string& which) override { return which == "best" ? path : ""; }
    std::string path;
  };
  const TemporaryFolder folder;
  TinyModule module;
  Trainer trainer(options(folder, 1, {AtEnd(folder / "mine.ckpt")}));
  trainer.fit(module, tiny_loader(8));
  EXPECT_EQ(trainer.callback<ModelCheckpoint>(), nullptr);  // not by default
  trainer.validate(module, tiny_loader(8), "best");
  EXPECT_EQ(trainer.ckpt_path(), folder / "mine.ckpt");
}

// Saves at the end of the fit, and names that file as the last.
struct NamesTheLast : Checkpoint {
  explicit NamesTheLast(std::string file) : path(std::move(file)) {}
  void on_train_end(Trainer& trainer, LightningModule&) override { trainer.save_checkpoint(path); }
  std::string checkpoint_path(Trainer&, const std::string& which) override { return which == "last" ? path : ""; }
  std::string path;
};

TEST(CheckpointSearch, AsksACheckpointCallbackOfTheUserForTheLast) {
  const TemporaryFolder folder;
  const std::string mine = folder / "mine.ckpt";
  TinyModule module;
  EXPECT_TRUE(has(fit(module, options(folder, 1, {NamesTheLast(mine)}), "last"), "there is no checkpoint yet"));
  Trainer evaluates(options(folder, 1, {NamesTheLast(mine)}));
  evaluates.validate(module, tiny_loader(4), "last");
  EXPECT_EQ(evaluates.ckpt_path(), mine);
  Trainer continues(options(folder, 2, {NamesTheLast(folder / "none.ckpt"), NamesTheLast(mine)}));
  continues.fit(module, tiny_loader(8), tiny_loader(4), "last");
  EXPECT_EQ(continues.ckpt_path(), mine);
  EXPECT_EQ(continues.global_step(), 4);
}

TEST(CheckpointSearch, TheNewestOfTheNamedLastAndOfTheFoldersIsTaken) {
  const TemporaryFolder folder;
  TinyModule module;
  fit(module, options(folder, 1, {NamesTheLast(folder / "mine.ckpt")}));
  const Callbacks both{NamesTheLast(folder / "mine.ckpt"), ModelCheckpoint({.dirpath = folder / "saved"})};
  const auto found = [&] {
    Trainer trainer(options(folder, 1, both));
    trainer.test(module, tiny_loader(4), "last");
    return trainer.ckpt_path();
  };
  EXPECT_EQ(found(), folder / "mine.ckpt");
  fit(module, options(folder, 2, {ModelCheckpoint({.dirpath = folder / "saved"})}));
  EXPECT_EQ(found(), folder / "saved/epoch=1-step=4.ckpt");
}

TEST(CheckpointSearch, AStopIsSavedByTheFirstCallbackThatGivesAPath) {
  struct Stopped : TinyModule {
    void on_train_batch_end(const at::Tensor&, const Batch&, int64_t) override { std::raise(SIGTERM); }
  };
  const TemporaryFolder folder;
  const auto stop = [&](Callbacks callbacks) {
    Stopped module;
    return error_of<Interrupted>(
        [&] { Trainer(options(folder, 1, std::move(callbacks))).fit(module, tiny_loader(8)); });
  };
  const auto silent = std::make_shared<NamesTheLast>(folder / "mine.ckpt");
  EXPECT_TRUE(holds(stop({silent, ModelCheckpoint({.dirpath = folder / "saved"})}),
                    {"ckpt_path: " + folder / "saved/interrupted.ckpt"}));
  EXPECT_TRUE(fs::exists(folder / "saved/interrupted.ckpt"));
  EXPECT_TRUE(
      holds(stop({silent}), {"Nothing was saved, because no checkpoint callback gives a path for \"interrupted\"."}));
  TrainerOptions none = options(folder, 1, {});
  none.enable_checkpointing = false;
  Stopped module;
  EXPECT_TRUE(holds(error_of<Interrupted>([&] { Trainer(none).fit(module, tiny_loader(8)); }),
                    {"Nothing was saved, because there is no checkpoint callback."}));
}

}  // namespace
}  // namespace levin::checkpoint_search_test
