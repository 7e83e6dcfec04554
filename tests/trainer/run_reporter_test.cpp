// run.json of real runs.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "levin/callbacks/lambda_callback.h"
#include "levin/callbacks/model_checkpoint.h"
#include "levin/core/files/files.h"
#include "levin/loggers/csv_logger.h"
#include "support/captured_console.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::run_reporter_test {
namespace {

using Json = nlohmann::json;
using test::TemporaryFolder;
using test::tiny_loader;
using test::TinyModule;

TrainerOptions options(const TemporaryFolder& folder, int64_t epochs) {
  return {.max_epochs = epochs,
          .log_every_n_steps = 1,
          .logger = CSVLogger({.save_dir = folder.path(), .name = "", .version = "run"}),
          .enable_progress_bar = false,
          .enable_model_summary = false,
          .default_root_dir = folder.path()};
}

Json record(const TemporaryFolder& folder) {
  return Json::parse(read_file(folder / "run/run.json"));
}

TEST(RunReporter, WritesWhatARunIsAndWhatItHasReached) {
  const TemporaryFolder folder;
  TinyModule module;
  module.table = {3.0, 1.0, 2.0};
  TrainerOptions with = options(folder, 3);
  with.callbacks = {ModelCheckpoint({.monitor = "v", .save_top_k = 1})};
  Trainer trainer(std::move(with));
  trainer.fit(module, {tiny_loader(24)}, {tiny_loader(8)});
  const Json run = record(folder);
  EXPECT_EQ(run["status"], "success");
  EXPECT_EQ(run["command"], "fit");
  EXPECT_EQ(run["pid"], getpid());
  EXPECT_EQ(run["epoch"], 3);
  EXPECT_EQ(run["max_epochs"], 3);
  EXPECT_EQ(run["step"], 18);  // six batches of four in an epoch
  EXPECT_EQ(run["total_batches"], 18);
  EXPECT_EQ(run["progress"], 1.0);
  EXPECT_TRUE(run["max_steps"].is_null());
  EXPECT_GE(run["ended"].get<double>(), run["started"].get<double>());
  EXPECT_EQ(run["sessions"].size(), 1U);
  EXPECT_EQ(run["metrics"]["v"]["last"], 2.0);
  EXPECT_EQ(run["metrics"]["v"]["min"], 1.0);
  EXPECT_EQ(run["metrics"]["v"]["max"], 3.0);
  EXPECT_LT(run["metrics"]["v"]["min_step"], run["metrics"]["v"]["last_step"]);
  EXPECT_EQ(run["monitor"]["name"], "v");
  EXPECT_EQ(run["monitor"]["best"], 1.0);
  ASSERT_EQ(run["checkpoints"].size(), 1U);  // the first was removed when the second was better
  EXPECT_EQ(run["checkpoints"][0]["step"], 12);
  EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(folder / "run") / run["checkpoints"][0]["path"]));
  EXPECT_GT(run["ranks"][0]["memory_bytes"], 1 << 20);
  EXPECT_EQ(run["clock"].back()[0], 18);
}

TEST(RunReporter, ReportsWhyARunEnded) {
  const auto ended = [](const std::function<void(TrainerOptions&)>& change, const std::string& stop = "") {
    const TemporaryFolder folder;
    TinyModule module;
    TrainerOptions with = options(folder, 2);
    change(with);
    if (!stop.empty()) {
      module.on_training_step = [&](int64_t batch) {
        if (batch == 2) module.trainer().request_stop(stop);
      };
    }
    Trainer(std::move(with)).fit(module, {tiny_loader(24)});
    EXPECT_EQ(record(folder)["status"], "success");
    const std::string log = read_file(folder / "run/run.log"),
                      reason = record(folder)["stop_reason"].get<std::string>();
    EXPECT_NE(log.find(": " + reason), std::string::npos) << log;
    return reason;
  };
  EXPECT_EQ(ended([](TrainerOptions&) {}), "max_epochs (2) is reached");
  EXPECT_EQ(ended([](TrainerOptions& with) { with.max_steps = 3; }), "max_steps (3) is reached");
  EXPECT_EQ(ended([](TrainerOptions&) {}, "val_loss has not improved"), "val_loss has not improved");
}

TEST(RunReporter, ReportsHowARunFailed) {
  const TemporaryFolder folder;
  TinyModule module;
  module.on_training_step = [](int64_t index) {
    if (index == 2) throw std::runtime_error("the data is odd");
  };
  Trainer trainer(options(folder, 1));
  EXPECT_THROW(trainer.fit(module, {tiny_loader(24)}), std::runtime_error);
  EXPECT_EQ(record(folder)["status"], "failed");
  EXPECT_NE(record(folder)["error"].get<std::string>().find("the data is odd"), std::string::npos);
  EXPECT_EQ(record(folder)["total_batches"], 2);
}

TEST(RunReporter, ContinuesTheRecordOfARunThatIsResumed) {
  const TemporaryFolder folder;
  {
    TinyModule module;
    Trainer trainer(options(folder, 1));
    trainer.fit(module, {tiny_loader(24)});
    trainer.save_checkpoint(folder / "one.ckpt");
  }
  const Json before = record(folder);
  TinyModule module;
  Trainer trainer(options(folder, 2));
  trainer.fit(module, Loaders{tiny_loader(24)}, Loaders{}, folder / "one.ckpt");
  const Json run = record(folder);
  EXPECT_EQ(run["started"], before["started"]);
  ASSERT_EQ(run["sessions"].size(), 2U);
  EXPECT_EQ(run["sessions"][0]["status"], "success");
  EXPECT_EQ(run["sessions"][1]["first_step"], 6);
  EXPECT_GE(run["trained_seconds"].get<double>(), before["trained_seconds"].get<double>());
  EXPECT_EQ(run["clock"].back()[0], 12);
}

// A killed process leaves a record with the status running.
TEST(RunReporter, ClosesTheSessionOfAKilledRunThatIsResumed) {
  const TemporaryFolder folder;
  {
    TinyModule module;
    Trainer trainer(options(folder, 1));
    trainer.fit(module, {tiny_loader(24)});
    trainer.save_checkpoint(folder / "one.ckpt");
  }
  Json killed = record(folder);
  killed["status"] = killed["sessions"][0]["status"] = "running";
  killed["ended"] = killed["sessions"][0]["ended"] = nullptr;
  folder.write("run/run.json", killed.dump());
  TinyModule module;
  Trainer trainer(options(folder, 2));
  trainer.fit(module, Loaders{tiny_loader(24)}, Loaders{}, folder / "one.ckpt");
  const Json run = record(folder);
  ASSERT_EQ(run["sessions"].size(), 2U);
  EXPECT_EQ(run["sessions"][0]["status"], "killed");
  EXPECT_EQ(run["sessions"][0]["ended"], killed["updated"]);
  EXPECT_EQ(run["sessions"][1]["status"], "success");
}

TEST(RunReporter, BeginsAnewWhereARunIsNotResumed) {
  const TemporaryFolder folder;
  for (int k = 0; k < 2; ++k) {
    TinyModule module;
    Trainer(options(folder, 1)).fit(module, {tiny_loader(24)});
  }
  EXPECT_EQ(record(folder)["sessions"].size(), 1U);
}

TEST(RunReporter, LeavesAFitsRecordAloneInAnEvaluation) {
  const TemporaryFolder folder;
  TinyModule module;
  Trainer(options(folder, 1)).fit(module, {tiny_loader(24)});
  const Json before = record(folder);
  Trainer(options(folder, 1)).validate(module, Loaders{tiny_loader(8)});
  EXPECT_EQ(record(folder), before);
}

// Measures after the fit, as `levin fit` does with test_after_fit.
TEST(RunReporter, AddsWhatIsMeasuredAfterAFitToItsRecord) {
  const TemporaryFolder folder;
  TinyModule module;
  Trainer trainer(options(folder, 1));
  trainer.fit(module, {tiny_loader(24)}, {tiny_loader(8)});
  Json before = record(folder);
  const double tested = trainer.test(module, Loaders{tiny_loader(16)})[0].at("test_loss");
  trainer.validate(module, Loaders{tiny_loader(12)});
  Json after = record(folder);
  EXPECT_EQ(after["metrics"]["test_loss"]["last"], tested);
  EXPECT_EQ(after["command"], "fit");
  EXPECT_EQ(after["metrics"]["val_loss"], before["metrics"]["val_loss"]) << "the value of the fit";
  after["metrics"].erase("test_loss");
  EXPECT_EQ(after, before);
  const double again = trainer.test(module, Loaders{tiny_loader(4)})[0].at("test_loss");
  EXPECT_NE(again, tested);
  EXPECT_EQ(record(folder)["metrics"]["test_loss"]["last"], again);
}

TEST(RunReporter, FollowsARunningRun) {
  const TemporaryFolder folder;
  TinyModule module;
  Json seen;
  TrainerOptions with = options(folder, 1'000'000);
  with.callbacks = {LambdaCallback(
      {.on_train_batch_end = [&](Trainer& t, LightningModule&, const at::Tensor&, const Batch&, int64_t) {
        t.flush_logs();
        const Json now = record(folder);
        if (now["total_batches"] < 10) return;
        seen = now;
        t.request_stop("it was seen");
      }})};
  Trainer(std::move(with)).fit(module, {tiny_loader(24)});
  EXPECT_EQ(seen["status"], "running");
  EXPECT_TRUE(seen["ended"].is_null());
  EXPECT_EQ(seen["ranks"][0]["stage"], "training");
  EXPECT_GT(seen["remaining_seconds"].get<double>(), 0);
  EXPECT_GT(seen["rates"]["batches_per_second"].get<double>(), 0);
}

TEST(RunReporter, AFolderThatCannotBeWrittenDoesNotEndARun) {
  const TemporaryFolder folder;
  const test::CapturedConsole console;
  TinyModule module;
  TrainerOptions with = options(folder, 1);
  with.enable_checkpointing = false;
  with.callbacks = {LambdaCallback({.on_train_start = [&](Trainer& t, LightningModule&) {
    t.flush_logs();
    std::filesystem::remove(folder / "run/run.json");
    std::filesystem::create_directory(folder / "run/run.json");  // it cannot be replaced by a file
    std::ofstream(folder / "run/run.json/x") << "x";
  }})};
  Trainer(std::move(with)).fit(module, {tiny_loader(24)});
  EXPECT_TRUE(console.has("run.json: cannot write it: ")) << console.text();
  EXPECT_TRUE(console.has("levin runs and levin top need it")) << console.text();
}

}  // namespace
}  // namespace levin::run_reporter_test
