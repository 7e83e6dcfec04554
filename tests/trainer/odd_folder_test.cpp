// Checkpoint folders with contents that no run writes: loops of links, folders instead of files, unreadable files.
// auto_resume names them and takes the newest good checkpoint.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>

#include "levin/core/files/files.h"
#include "levin/levin.h"
#include "levin/trainer/state/checkpoint_search.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::odd_folder_test {
namespace {

namespace fs = std::filesystem;
using test::CapturedConsole;
using test::error_of;
using test::expect_parts;
using test::TemporaryFolder;
using test::tiny_loader;
using test::TinyModule;

TrainerOptions options(int64_t epochs, const std::string& root) {
  TrainerOptions options;
  options.max_epochs = epochs;
  options.auto_resume = true;
  options.callbacks = {ModelCheckpoint({.save_top_k = -1})};
  options.enable_progress_bar = false;
  options.enable_model_summary = false;
  options.default_root_dir = root;
  options.log_every_n_steps = 1;
  return options;
}

std::string run(int64_t epochs, const std::string& root) {
  TinyModule module;
  const CapturedConsole console;
  Trainer(options(epochs, root)).fit(module, tiny_loader(8));
  return console.text();
}

// A run of one epoch; `spoil` gets its checkpoint folder. Returns the output of the same run when it resumes.
std::string continued_after(const TemporaryFolder& folder, const std::function<void(const std::string&)>& spoil) {
  run(1, folder.path());
  spoil(folder / "levin_logs/version_0/checkpoints");
  return run(2, folder.path());
}

const std::string kGood = "levin_logs/version_0/checkpoints/epoch=0-step=2.ckpt";

void expect_continues(const TemporaryFolder& folder, const std::string& output, const std::string& named) {
  EXPECT_NE(output.find("auto_resume: continuing from " + folder / kGood), std::string::npos) << output;
  if (!named.empty()) {
    EXPECT_NE(output.find(named), std::string::npos) << output;
  }
}

TEST(OddFolder, ALoopOfLinksIsNamedAndTheOlderCheckpointTaken) {
  const TemporaryFolder folder;
  const std::string output = continued_after(
      folder, [](const std::string& checkpoints) { fs::create_symlink("loop.ckpt", checkpoints + "/loop.ckpt"); });
  expect_continues(folder, output, "loop.ckpt: cannot be read: Too many levels of symbolic links");
}

TEST(OddFolder, AFolderWhereAFileShouldBeIsPassedOver) {
  const TemporaryFolder folder;
  const std::string output = continued_after(folder, [](const std::string& checkpoints) {
    fs::create_directories(checkpoints + "/folder.ckpt/commit.safetensors/deep");
    fs::create_directories(checkpoints + "/empty.ckpt");
    fs::create_directories(checkpoints + "/full.ckpt/notes");
    fs::create_directories(checkpoints + "/last.ckpt.tmp-0123456789abcdef");
  });
  expect_continues(folder, output, "folder.ckpt/commit.safetensors: cannot be read: Is a directory");
}

TEST(OddFolder, LinksToNothingAndPipesAreNoHindrance) {
  const TemporaryFolder folder;
  const std::string output = continued_after(folder, [](const std::string& checkpoints) {
    fs::create_symlink("nowhere", checkpoints + "/dangling.ckpt");
    ASSERT_EQ(::mkfifo((checkpoints + "/pipe.ckpt").c_str(), 0600), 0);
    ASSERT_EQ(::mkfifo((checkpoints + "/pipe.tmp-0123456789abcdef").c_str(), 0600), 0);
  });
  expect_continues(folder, output, "pipe.ckpt: cannot be read");
}

// No process writes to them, so that a read that waits never ends.
TEST(OddFolder, FifosInPlaceOfARunsOwnFilesAreNamedAndNotWaitedFor) {
  const TemporaryFolder folder;
  const std::string log_dir = folder / "levin_logs/version_0";
  const std::string output = continued_after(folder, [&](const std::string&) {
    for (const char* name : {"run.json", "run.log", "hparams.yaml", ".rank1.json"}) {
      fs::remove(fs::path(log_dir) / name);
      ASSERT_EQ(::mkfifo((fs::path(log_dir) / name).c_str(), 0600), 0);
    }
  });
  expect_continues(folder, output, "run.log: it is a FIFO, not a regular file. The run continues without this file.");
  expect_continues(folder, output, "run.json: it is a FIFO, and only regular files are replaced.");
}

TEST(OddFolder, AFifoInPlaceOfARecordDoesNotKeepARunFromStarting) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "levin_logs/version_0");
  ASSERT_EQ(::mkfifo((folder / "levin_logs/version_0/run.json").c_str(), 0600), 0);
  expect_parts(run(1, folder.path()), {"auto_resume: cannot read " + folder / "levin_logs/version_0/run.json" +
                                       ": it is a FIFO, not a regular file. Folders that it would name are not"});
}

TEST(OddFolder, NoRowIsWrittenToWhatALinkOrAFifoLeadsTo) {
  for (const bool is_fifo : {true, false}) {
    const TemporaryFolder folder;
    const std::string theirs = folder.write("theirs", "step,loss\n0,1\n1,2\n2,3\n3,4\n");
    const std::string error = error_of([&] {
      (void)continued_after(folder, [&](const std::string&) {
        const std::string metrics = folder / "levin_logs/version_0/metrics.csv";
        fs::remove(metrics);
        if (is_fifo) {
          ASSERT_EQ(::mkfifo(metrics.c_str(), 0600), 0);
        } else {
          fs::create_symlink(theirs, metrics);
        }
      });
    });
    expect_parts(error, {is_fifo ? "metrics.csv: it is a FIFO, not a regular file."
                                 : "metrics.csv: it is a symbolic link, not a regular file."});
    EXPECT_EQ(read_file(theirs), "step,loss\n0,1\n1,2\n2,3\n3,4\n");
  }
}

// In a child without root's right to read everything.
TEST(OddFolder, WhatMayNotBeReadIsNamedAndTheOlderCheckpointTaken) {
  const TemporaryFolder folder;
  fs::permissions(folder.path(), fs::perms::all);
  const pid_t child = ::fork();
  if (child == 0) {
    at::set_num_threads(1);
    if (::geteuid() == 0 && (::setgid(65534) != 0 || ::setuid(65534) != 0)) ::_exit(77);
    std::string output;
    try {
      output = continued_after(folder, [](const std::string& checkpoints) {
        std::ofstream(checkpoints + "/secret.ckpt") << "x";
        fs::permissions(checkpoints + "/secret.ckpt", fs::perms::none);
        fs::create_directories(checkpoints + "/closed.ckpt");
        std::ofstream(checkpoints + "/closed.ckpt/commit.safetensors") << "x";
        fs::permissions(checkpoints + "/closed.ckpt", fs::perms::none);
      });
    } catch (const std::exception& error) {
      output = error.what();
    }
    fs::permissions(folder / "levin_logs/version_0/checkpoints/closed.ckpt", fs::perms::all);
    const bool good = output.find("continuing from " + folder / kGood) != std::string::npos &&
                      output.find("secret.ckpt: cannot be read: Permission denied") != std::string::npos;
    if (!good) std::fprintf(stderr, "output: %s\n", output.c_str());
    ::_exit(good ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "root cannot become nobody here";
  EXPECT_EQ(status, 0) << "the child says why above";
}

TEST(OddFolder, AFolderThatIsALoopHoldsNoCheckpoints) {
  const TemporaryFolder folder;
  fs::create_directory_symlink("loop", folder / "loop");
  EXPECT_TRUE(find_checkpoints(folder / "loop").empty());
  EXPECT_TRUE(find_checkpoints(folder / "none").empty());
}

TEST(OddFolder, ANulByteInAPathIsRefusedBeforeAnythingIsMade) {
  const TemporaryFolder folder;
  const std::string nul = folder / std::string("a\0b", 3);
  TinyModule module;
  const std::vector<std::string> errors{error_of([&] { Trainer(options(1, nul)).fit(module, tiny_loader(8)); }),
                                        error_of([&] { (void)ModelCheckpoint({.dirpath = nul}); }),
                                        error_of([&] { (void)ModelCheckpoint({.filename = std::string("a\0b", 3)}); }),
                                        error_of([&] { (void)OnExceptionCheckpoint({.dirpath = nul}); }),
                                        error_of([&] { (void)TraceProfiler({.dirpath = nul}); }),
                                        error_of([&] { (void)TensorBoardLogger({.sub_dir = nul}); }),
                                        error_of([&] { (void)CSVLogger({.save_dir = nul}); }),
                                        error_of([&] { (void)JSONLinesLogger({.version = nul}); }),
                                        error_of([&] { (void)SQLiteLogger({.path = nul}); }),
                                        error_of([&] { (void)PrometheusLogger({.path = nul}); }),
                                        error_of([&] { (void)MLFlowLogger({.save_dir = nul}); }),
                                        error_of([&] { (void)LearningRateFinder({.plot = nul}); }),
                                        error_of([&] { (void)PredictionWriter({.output = nul + ".csv"}); }),
                                        error_of([&] { make_folder(nul); }),
                                        error_of([&] { write_file_durably(nul, std::string("x")); }),
                                        error_of([&] { (void)read_file(nul); }),
                                        error_of([&] { (void)load_checkpoint(nul); })};
  for (const std::string& error : errors) EXPECT_NE(error.find("NUL byte"), std::string::npos) << error;
  EXPECT_TRUE(folder.names().empty());
}

// One error that names the option, and not a promise that training continues.
TEST(OddFolder, ALoggersFileThatCannotBeMadeIsAnErrorBeforeTraining) {
  const TemporaryFolder folder;
  write_file_durably(folder / "file", std::string("in the way"));
  fs::create_directory(folder / "folder.prom");
  const std::string below = folder / "file/below";
  const std::vector<std::pair<std::string, std::vector<std::string>>> paths{
      {below + "/runs.prom", {"cannot create the folder " + below, "Not a directory", "Set path of the logger"}},
      {folder / "folder.prom", {folder / "folder.prom is a folder", "Set path of the logger to a file"}}};
  for (const auto& [path, parts] : paths) {
    for (const bool is_sqlite : {false, true}) {
      TrainerOptions with = options(1, folder.path());
      if (is_sqlite) with.logger = SQLiteLogger({.path = path});
      if (!is_sqlite) with.logger = PrometheusLogger({.path = path});
      TinyModule module;
      const CapturedConsole console;
      const std::string error = error_of([&] { Trainer(with).fit(module, tiny_loader(8)); });
      EXPECT_TRUE(error.starts_with(is_sqlite ? "SQLiteLogger: " : "PrometheusLogger: ")) << error;
      for (const std::string& text : parts) EXPECT_NE(error.find(text), std::string::npos) << error;
      EXPECT_EQ(console.text().find("training continues"), std::string::npos) << console.text();
    }
  }
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"file", "folder.prom"}));
}

}  // namespace
}  // namespace levin::odd_folder_test
