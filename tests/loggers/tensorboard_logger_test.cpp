#include "levin/loggers/tensorboard_logger.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "levin/core/files/files.h"
#include "levin/loggers/event_records.h"
#include "loggers/event_reader.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::tensorboard_logger_test {
namespace {

using test::CapturedConsole;
using test::Fields;
using test::fields_of;
using test::raw;
using test::records_of;
using test::TemporaryFolder;

TensorBoardLoggerOptions in(const TemporaryFolder& folder) {
  return {.save_dir = folder.path(), .name = "", .version = "run", .flush_secs = 0};
}

std::unique_ptr<TensorBoardLogger> started(const TensorBoardLoggerOptions& options) {
  auto logger = std::make_unique<TensorBoardLogger>(options);
  logger->start("", false);
  logger->own_folder();
  return logger;
}

std::vector<std::string> event_files(const std::string& folder) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("events.")) found.push_back(entry.path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

// The steps of the events with a summary, and "start N" for session starts, of all files.
std::vector<std::string> steps_in(const std::string& folder) {
  std::vector<std::string> steps;
  for (const auto& file : event_files(folder)) {
    for (const auto& record : records_of(read_file(file))) {
      Fields event = fields_of(record);
      const std::string step = event[2].empty() ? "" : std::to_string(raw<int64_t>(event[2][0]));
      if (!event[7].empty()) steps.push_back("start " + step);
      if (!event[5].empty()) steps.push_back(step);
    }
  }
  return steps;
}

using Steps = std::vector<std::string>;

TEST(TensorBoardLogger, BeginsItsFileWithTheFirstValue) {
  const TemporaryFolder folder;
  const auto logger = started(in(folder));
  ConfigNode hparams = ConfigNode::map();
  hparams.set("lr", ConfigNode::scalar("0.1"));
  logger->log_hyperparams(hparams);
  logger->finalize("failed");
  EXPECT_TRUE(event_files(folder / "run").empty()) << "a run that failed before its first value";
  EXPECT_EQ(read_file(folder / "run/hparams.yaml"), "lr: 0.1\n");
  logger->log_metrics({{"a", 1}}, 3);
  EXPECT_EQ(event_files(folder / "run"), std::vector<std::string>{logger->event_path()});
  EXPECT_EQ(steps_in(folder / "run"), (Steps{"0", "3"})) << "hyperparameters first";
}

TEST(TensorBoardLogger, PutsItsFileInSubDirAndAPrefixBeforeNames) {
  const TemporaryFolder folder;
  auto options = in(folder);
  options.sub_dir = "events";
  options.prefix = "mine";
  options.filename_suffix = ".x";
  const auto logger = started(options);
  logger->log_metrics({{"a", 1}}, 3);
  EXPECT_EQ(logger->log_dir(), folder / "run");
  const auto files = event_files(folder / "run/events");
  ASSERT_EQ(files.size(), 1u);
  EXPECT_TRUE(files[0].ends_with(".x"));
  EXPECT_NE(read_file(files[0]).find("mine-a"), std::string::npos);
}

TEST(TensorBoardLogger, KeepsRecordsUntilTheyAreDueOrSaved) {
  const TemporaryFolder folder;
  auto options = in(folder);
  options.flush_secs = 3600;
  const auto logger = started(options);
  for (int64_t step = 0; step < 3; ++step) logger->log_metrics({{"a", 1}}, step);
  EXPECT_EQ(steps_in(folder / "run"), Steps{"0"}) << "the first at once";
  logger->save();
  EXPECT_EQ(steps_in(folder / "run"), (Steps{"0", "1", "2"}));
}

TEST(TensorBoardLogger, GoesBackToACheckpoint) {
  const TemporaryFolder folder;
  State state;
  {
    const auto logger = started(in(folder));
    logger->log_metrics({{"a", 1}}, 4);
    logger->log_metrics({{"val", 1}}, 2);
    state = logger->state_dict();
    logger->log_metrics({{"val", 1}}, 4);
    logger->log_metrics({{"a", 1}}, 5);
  }
  for (int session = 0; session < 2; ++session) {  // the first is killed before it saves a checkpoint
    const auto logger = started(in(folder));
    logger->load_state_dict(state);
    logger->log_metrics({{"a", 1}}, 5);
    EXPECT_EQ(steps_in(folder / "run"), (Steps{"4", "2", "start 5", "5"})) << session;
    EXPECT_EQ(logger->files().size(), 2u);
  }
  const auto over = started(in(folder));
  over->load_state_dict(State());
  EXPECT_TRUE(event_files(folder / "run").empty());
}

TEST(TensorBoardLogger, AResumedRunGivesFinalValuesOnlyToMetricsThatNeverHadOne) {
  const TemporaryFolder folder;
  State state;
  {
    const auto logger = started(in(folder));
    logger->log_metrics({{"a", 1}}, 4);
    state = logger->state_dict();
  }
  const auto logger = started(in(folder));
  logger->load_state_dict(state);
  logger->log_final_metrics({{"a", 1}}, 5);
  EXPECT_EQ(steps_in(folder / "run"), Steps{"4"}) << "a run that had ended, and has nothing to train";
  logger->log_final_metrics({{"a", 1}, {"b", 2}}, 5);
  EXPECT_EQ(steps_in(folder / "run"), (Steps{"4", "start 5", "5"}));
}

TEST(TensorBoardLogger, LeavesOtherProgramsFilesAlone) {
  const TemporaryFolder folder;
  make_folder(folder / "run");
  WireMessage other;
  const std::string theirs = framed_event(other.real(1, 99).text(3, "brain.Event:2"));
  write_file_durably(folder / "run/events.out.tfevents.9999999998.host.1.0", theirs);
  const auto logger = started(in(folder));
  logger->load_state_dict(State());
  logger->log_metrics({{"a", 1}}, 0);
  EXPECT_EQ(read_file(folder / "run/events.out.tfevents.9999999998.host.1.0"), theirs);
  EXPECT_NE(logger->event_path().find("events.out.tfevents.9999999999."), std::string::npos) << "sorted after it";
}

TEST(TensorBoardLogger, IgnoresTimesInNamesThatNoClockHas) {
  for (const std::string time : {"9223372036854775807", "99999999999", "-9223372036854775808"}) {
    const TemporaryFolder folder;
    make_folder(folder / "run");
    write_file_durably(folder / "run/events.out.tfevents." + time + ".host.1.0", version_record(1));
    const auto logger = started(in(folder));
    logger->load_state_dict(State());
    logger->log_metrics({{"a", 1}}, 0);
    const std::string name = std::filesystem::path(logger->event_path()).filename().string();
    const int64_t own = std::stoll(name.substr(std::string("events.out.tfevents.").size()));
    EXPECT_GT(own, 1'700'000'000) << time;
    EXPECT_LT(own, 9'999'999'999) << time;
  }
}

TEST(TensorBoardLogger, ANamedVersionKeepsTheFilesOfEarlierRuns) {
  const TemporaryFolder folder;
  started(in(folder))->log_metrics({{"a", 1}}, 0);
  const auto logger = started(in(folder));
  logger->log_metrics({{"a", 1}}, 1);
  const State state = logger->state_dict();
  const auto again = started(in(folder));
  again->load_state_dict(state);
  EXPECT_EQ(steps_in(folder / "run"), (Steps{"0", "1"}));
}

TEST(TensorBoardLogger, ReportsItIfRecordsOfTheCheckpointAreMissing) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  const auto logger = started(in(folder));
  logger->log_metrics({{"a", 1}}, 0);
  const State state = logger->state_dict();
  const std::string path = logger->event_path();
  const auto bytes = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, bytes - 3);
  logger->load_state_dict(state);
  EXPECT_TRUE(console.has("TensorBoardLogger: " + path + " holds " + std::to_string(bytes - 3) +
                          " bytes where the checkpoint counts " + std::to_string(bytes) +
                          ". The missing ones are lost."))
      << console.text();
}

TEST(TensorBoardLogger, WaitsForADisk) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  const auto logger = started(in(folder));
  logger->log_metrics({{"a", 1}}, 0);
  const std::string path = logger->event_path();
  std::filesystem::rename(path, folder / "aside");
  make_folder(path);  // nothing can be written there
  for (int64_t step = 1; step < 20; ++step) logger->log_metrics({{"a", 1}}, step);
  EXPECT_EQ(console.lines().size(), 1u) << console.text();
  EXPECT_TRUE(console.has("error: TensorBoardLogger: cannot write " + path +
                          ": Is a directory. Check the path and its disk. Records are kept in memory until they can be "
                          "written; training continues."))
      << console.text();
  std::filesystem::remove(path);
  std::filesystem::rename(folder / "aside", path);
  logger->finalize("success");
  EXPECT_TRUE(console.has("can be written again. It has the 19 records that waited.")) << console.text();
  EXPECT_EQ(steps_in(folder / "run").size(), 20u);
}

TEST(TensorBoardLogger, CountsTheRecordsThatAreLost) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  const auto logger = started(in(folder));
  logger->log_metrics({{"a", 1}}, 0);
  const std::string path = logger->event_path();
  std::filesystem::remove(path);
  make_folder(path);
  for (int64_t step = 1; step < 4; ++step) logger->log_metrics({{"a", 1}}, step);
  logger->finalize("success");
  EXPECT_TRUE(console.has("error: TensorBoardLogger: 3 records are lost: cannot write " + path + ": Is a directory."))
      << console.text();
}

TEST(TensorBoardLogger, StartsAFileAgainThatWasRemoved) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  const auto logger = started(in(folder));
  logger->log_metrics({{"a", 1}}, 0);
  const auto bytes = std::filesystem::file_size(logger->event_path());
  std::filesystem::remove(logger->event_path());
  logger->log_metrics({{"a", 1}}, 1);
  EXPECT_TRUE(console.has("warning: TensorBoardLogger: " + logger->event_path() + " was removed. The " +
                          std::to_string(bytes) + " bytes that it held are lost; it is started again."))
      << console.text();
  const auto records = records_of(read_file(logger->event_path()));
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(fields_of(records[0])[3].at(0), "brain.Event:2");
}

TEST(TensorBoardLogger, RefusesASuffixWithASlash) {
  EXPECT_EQ(test::error_of([] { TensorBoardLogger({.filename_suffix = "a/b"}); }),
            "TensorBoardLoggerOptions.filename_suffix: must be without \"/\", got \"a/b\".");
}

}  // namespace
}  // namespace levin::tensorboard_logger_test
