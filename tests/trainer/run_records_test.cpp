// The folder of a program without a run file: the hyper-parameters of the run that it continues,
// its records, its checkpoints, and the standard streams of whoever makes a Trainer.
#include "levin/trainer/state/run_records.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <stdexcept>

#include "levin/core/files/files.h"
#include "levin/levin.h"
#include "levin/trainer/run/run_access.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::run_records_test {
namespace {

namespace fs = std::filesystem;

using test::CapturedConsole;
using test::error_of;
using test::TemporaryFolder;
using test::tiny_loader;
using test::TinyModule;

class WithHparams : public TinyModule {
 public:
  explicit WithHparams(double lr, int64_t num_workers = 0) {
    ConfigNode hparams = ConfigNode::map();
    hparams.set("lr", ConfigNode::scalar(number_text(lr)));
    hparams.set("num_workers", ConfigNode::scalar(std::to_string(num_workers)));
    save_hyperparameters(hparams);
  }
};

TrainerOptions options_in(const std::string& folder, int64_t epochs = 1) {
  TrainerOptions options;
  options.max_epochs = epochs;
  options.log_every_n_steps = 1;
  options.enable_progress_bar = options.enable_model_summary = false;
  options.default_root_dir = folder;
  options.auto_resume = true;
  return options;
}

void fit(LightningModule& module, const TrainerOptions& options) {
  Trainer trainer(options);
  trainer.fit(module, tiny_loader(24), {tiny_loader(16)});
}

// Its position counts the rows that are written, as SQLiteLogger's does.
struct BufferingLogger final : Logger {
  void start(const std::string&, bool) override {}
  void log_metrics(const MetricList&, const LogPoint&) override { ++waiting; }
  void save() override { written += std::exchange(waiting, 0); }
  [[nodiscard]] State state_dict() const override {
    EXPECT_EQ(waiting, 0);
    positions.push_back(written);
    return {};
  }
  int64_t waiting = 0;
  int64_t written = 0;
  mutable std::vector<int64_t> positions = {};
};

// A run that is stopped in a validation continues from the position before it.
TEST(RunRecords, HaveThePositionOfALoggerWithAllRowsBeforeAValidation) {
  const TemporaryFolder folder;
  const auto logger = std::make_shared<BufferingLogger>();
  TrainerOptions options = options_in(folder.path());
  options.logger = logger;
  options.num_sanity_val_steps = 0;
  options.enable_checkpointing = false;
  TinyModule module;
  fit(module, options);
  EXPECT_EQ(logger->positions, std::vector<int64_t>{6});
}

TEST(RunRecords, AreWrittenForLoggersWithoutAFolderWhereDefaultRootDirDoesNotExist) {
  const TemporaryFolder folder;
  const std::vector<std::shared_ptr<Logger>> loggers = {
      std::make_shared<SQLiteLogger>(SQLiteLoggerOptions{.path = folder / "all.sqlite"}),
      std::make_shared<PrometheusLogger>(PrometheusLoggerOptions{.path = folder / "run.prom"})};
  for (size_t k = 0; k < loggers.size(); ++k) {
    TrainerOptions options = options_in(folder / ("new/" + std::to_string(k)));
    options.logger = loggers[k];
    WithHparams module(0.1);
    Trainer trainer(options);
    ConfigNode config = ConfigNode::map();
    config.set("seed_everything", ConfigNode::scalar("1"));
    RunAccess::keep_config(trainer, {config, {}});
    trainer.fit(module, tiny_loader(24), {});
    EXPECT_EQ(read_file(options.default_root_dir + "/config.yaml"), to_yaml(config));
  }
}

TEST(ChangedOptions, AreFoundWhereverTheyStand) {
  ConfigNode before = ConfigNode::map();
  before.set("same", ConfigNode::scalar("1"));
  before.set("gone", ConfigNode::list({ConfigNode::scalar("a")}));
  before.set("deep", ConfigNode::map()).set("x", ConfigNode::scalar("1"));
  ConfigNode now = ConfigNode::map();
  now.set("deep", ConfigNode::map()).set("x", ConfigNode());
  now.set("same", ConfigNode::scalar("1", true));
  now.set("new", ConfigNode::list());
  std::string text;
  for (const auto& [path, was, is] : changed_options(before, now)) text += path + ": " + was + " -> " + is + "\n";
  EXPECT_EQ(text, "deep.x: 1 -> null\nnew: not set -> []\ngone[0]: a -> not set\n");
}

TEST(ChangedOptions, ThatSayHowLongOrWhereARunTrainsAreWelcome) {
  for (const char* path : {"trainer.max_epochs", "trainer.devices[1]", "trainer.strategy.init_args.timeout",
                           "data.init_args.num_workers", "weights.path", "ckpt_path"}) {
    EXPECT_TRUE(may_change(path)) << path;
  }
  for (const char* path : {"trainer.max_epochs_of_mine", "max_epochs", "trainer.precision", "model.init_args.lr",
                           "trainer.callbacks[0].class_path", "seed_everything", "hyper_parameters.max_steps"}) {
    EXPECT_FALSE(may_change(path)) << path;
  }
}

TEST(RunRecords, OfAProgramWithOtherHyperParametersAreLeftAndTheRunIsRefused) {
  const TemporaryFolder folder;
  WithHparams first(0.1);
  fit(first, options_in(folder.path()));
  const std::string record = folder / "levin_logs/version_0/hparams.yaml";
  const std::string before = read_file(record);
  WithHparams other(0.2, 3);
  const CapturedConsole console;
  const std::string message = error_of([&] { fit(other, options_in(folder.path(), 2)); });
  EXPECT_NE(message.find("hyper_parameters.lr was 0.1 and is 0.2 now."), std::string::npos) << message;
  EXPECT_NE(message.find("continue with the new ones by trainer.auto_resume: warn"), std::string::npos) << message;
  EXPECT_TRUE(console.has("auto_resume: hyper_parameters.num_workers was 0 and is 3 now.")) << console.text();
  EXPECT_EQ(read_file(record), before);
  TrainerOptions options = options_in(folder.path(), 2);
  options.auto_resume = "warn";
  fit(other, options);
  EXPECT_TRUE(console.has("auto_resume: hyper_parameters.lr was 0.1 and is 0.2 now.")) << console.text();
  EXPECT_NE(read_file(record), before);
}

TEST(RunRecords, AreNoMatterWhereACheckpointWasNamed) {
  const TemporaryFolder folder;
  WithHparams first(0.1);
  fit(first, options_in(folder / "first"));
  WithHparams other(0.2);
  Trainer trainer(options_in(folder / "second", 2));
  EXPECT_NO_THROW(trainer.fit(other, tiny_loader(24), {tiny_loader(16)},
                              folder / "first/levin_logs/version_0/checkpoints/epoch=0-step=6.ckpt"));
}

TEST(RunRecords, AreWrittenOnlyOnceTrainingContinues) {
  const TemporaryFolder folder;
  WithHparams first(0.1);
  fit(first, options_in(folder.path()));
  const std::string record = folder / "levin_logs/version_0/hparams.yaml";
  const std::string before = read_file(record);
  WithHparams other(0.1, 3);
  TrainerOptions options = options_in(folder.path(), 2);
  options.limit_val_batches = 0.001;  // leaves no batch, which shows when the loaders are looked at
  EXPECT_NE(error_of([&] { fit(other, options); }), "");
  EXPECT_EQ(read_file(record), before);
}

// Whether the folder of a run that ends before its first batch is left, if `add` puts something into it.
bool is_left(const std::function<void(const fs::path& log_dir)>& add) {
  const TemporaryFolder folder;
  {
    TrainerOptions options = options_in(folder.path());
    options.callbacks = {LambdaCallback({.on_fit_start = [&](Trainer& trainer, LightningModule&) {
      add(trainer.log_dir());
      throw std::runtime_error("ends");
    }})};
    WithHparams module(0.1);
    Trainer trainer(options);
    EXPECT_THROW(trainer.fit(module, tiny_loader(24), {tiny_loader(16)}), std::exception);
    EXPECT_TRUE(fs::exists(folder / "levin_logs/version_0"));
  }
  return fs::exists(folder / "levin_logs/version_0");
}

TEST(FolderOfARun, IsRemovedWhereTheRunTrainedNothingAndLeftNoResult) {
  EXPECT_FALSE(is_left([](const fs::path&) {}));
  EXPECT_FALSE(is_left([](const fs::path& log_dir) { fs::create_directories(log_dir / "checkpoints"); }));
  EXPECT_TRUE(is_left([](const fs::path& log_dir) {
    fs::create_directories(log_dir / "checkpoints");
    write_file_durably((log_dir / "checkpoints/last.ckpt").string(), "a checkpoint");
  }));
  EXPECT_TRUE(is_left([](const fs::path& log_dir) { write_file_durably((log_dir / "plot.svg").string(), "a plot"); }));
  EXPECT_TRUE(is_left([](const fs::path& log_dir) { fs::create_directories(log_dir / "plots"); }));
}

TEST(FolderOfARun, IsGivenBackWithEachEntryPointAndTakenByOneTrainerAtATime) {
  const TemporaryFolder folder;
  TrainerOptions options = options_in(folder.path());
  Trainer trainer(options);
  TinyModule module;
  std::string message;
  module.on_training_step = [&](int64_t batch_idx) {
    if (batch_idx != 0) return;
    TinyModule inner;
    message = error_of([&] { fit(inner, options); });
  };
  trainer.fit(module, tiny_loader(24));
  EXPECT_NE(message.find("levin_logs/version_0 belongs to a run that is still alive"), std::string::npos) << message;
  EXPECT_FALSE(std::filesystem::exists(folder / "levin_logs/version_0/run.lock"));
  trainer.test(module, {tiny_loader(8)});
  TinyModule next;
  fit(next, options_in(folder.path(), 2));  // while the first trainer is still there
}

TEST(Saves, ThatAllFailMakeTheFitFailInTheEnd) {
  const TemporaryFolder folder;
  write_file_durably(folder / "file", "in the way");
  TrainerOptions options = options_in(folder / "run");
  options.callbacks = {ModelCheckpoint({.dirpath = folder / "file/below"})};
  TinyModule module;
  const CapturedConsole console;
  const std::string message = error_of([&] { fit(module, options); });
  EXPECT_NE(message.find("the fit has ended, but nothing of it is saved: all of its checkpoints failed (1 of 1)"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find(folder / "file/below"), std::string::npos) << message;
}

// In a child, where descriptors 0 to 2 are closed.
TEST(Trainer, OpensTheStandardStreamsThatAreClosed) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (const int fd : {0, 1, 2}) ::close(fd);
    const Trainer trainer(TrainerOptions{.logger = false, .enable_checkpointing = false});
    struct stat null {};
    struct stat seen {};
    ::stat("/dev/null", &null);
    for (const int fd : {0, 1, 2}) {
      if (::fstat(fd, &seen) != 0 || seen.st_rdev != null.st_rdev) ::_exit(1 + fd);
    }
    char c = 0;
    ::_exit(::read(0, &c, 1) == 0 && ::write(1, "x", 1) == 1 && ::write(2, "x", 1) == 1 ? 0 : 10);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Metrics, OfALogWithALineEndInTheirNameAreRefused) {
  class Bad : public TinyModule {
    void on_train_batch_end(const at::Tensor&, const Batch&, int64_t) override { log("loss\n1,2", 1.0); }
  };
  const TemporaryFolder folder;
  Bad module;
  const std::string message = error_of([&] { fit(module, options_in(folder.path())); });
  EXPECT_NE(
      message.find("log(\"loss\\n1,2\") in on_train_batch_end: the name holds a line end or another control character"),
      std::string::npos)
      << message;
}

}  // namespace
}  // namespace levin::run_records_test
