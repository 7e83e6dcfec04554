// Run folders are found, read regardless of their contents, and recognized as alive or dead.
#include "levin/cli/runs/run_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>

#include "levin/cli/runs/metrics_reader.h"
#include "levin/cli/runs/report_data.h"
#include "levin/cli/runs/run_alive.h"
#include "levin/cli/runs/run_list.h"
#include "levin/core/process/folder_lock.h"
#include "levin/core/process/this_process.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::run_folder_test {
namespace {

namespace fs = std::filesystem;

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

int64_t pid_that_is_gone() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

std::string running_record(const std::string& host, int64_t pid, double updated) {
  return "{\"status\": \"running\", \"host\": \"" + host + "\", \"pid\": " + std::to_string(pid) +
         ", \"started\": " + std::to_string(updated - 100) + ", \"updated\": " + std::to_string(updated) + "}";
}

class RunFolders : public ::testing::Test {
 protected:
  RunRecord read(const std::string& text) const {
    folder_.write("run.json", text);
    return read_run_record(folder_.path());
  }
  test::TemporaryFolder folder_;
};

TEST_F(RunFolders, EveryValueOfARecordIsRead) {
  const RunRecord record = read(R"({"format": 1, "command": "fit", "argv": ["levin", "fit"], "status": "success",
    "started": 1000.5, "updated": 1100, "ended": 1160.5, "error": "none", "host": "a", "pid": 12, "version": "0.1.0",
    "sessions": [{"started": 1000.5, "ended": 1050.5, "first_step": 0, "status": "interrupted"},
                 {"started": 1150.5, "ended": 1160.5, "first_step": 70, "status": "success"}],
    "strategy": "ddp", "precision": "bf16-mixed", "device": "cpu", "world_size": 2, "epoch": 3, "max_epochs": 10,
    "step": 120, "max_steps": -1, "total_batches": 240, "progress": 0.25, "remaining_seconds": 95.5,
    "metrics": {"val_loss": {"last": 0.3, "last_step": 119, "min": 0.25, "min_step": 60, "max": 2.5, "max_step": 1}},
    "monitor": {"name": "val_loss", "mode": "min", "best": 0.25, "best_path": "b.ckpt"},
    "checkpoints": [{"path": "checkpoints/b.ckpt", "step": 60, "epoch": 1, "time": 1040, "score": 0.25}],
    "skipped_steps": 4, "nonfinite_losses": 2, "rates": {"batches_per_second": 8.5, "samples_per_second": 68},
    "time_split": {"forward": 40, "data": 10}, "clock": [[0, 0.5], [60, 30], [50, 31], [120, 60]],
    "ranks": [{"rank": 1, "host": "b", "pid": 13, "memory_bytes": 100, "peak_memory_bytes": 200, "stage": "training"}]})");
  EXPECT_TRUE(record.has_record);
  EXPECT_EQ(record.status, RunStatus::success);
  EXPECT_EQ(record.argv, (std::vector<std::string>{"levin", "fit"}));
  EXPECT_DOUBLE_EQ(record.duration(), 60);  // without the 100 s between the sessions
  EXPECT_EQ(record.sessions[1].first_step, 70);
  EXPECT_EQ(record.world_size, 2);
  EXPECT_EQ(record.epoch, 3);
  EXPECT_EQ(record.step, 120);
  EXPECT_DOUBLE_EQ(record.progress, 0.25);
  EXPECT_DOUBLE_EQ(record.metrics.at("val_loss").min, 0.25);
  EXPECT_EQ(record.metrics.at("val_loss").max_step, 1);
  EXPECT_EQ(record.monitor, "val_loss");
  EXPECT_EQ(record.checkpoints[0].step, 60);
  EXPECT_EQ(record.skipped_steps, 4);
  EXPECT_DOUBLE_EQ(record.samples_per_second, 68);
  ASSERT_EQ(record.time_split.size(), 2U);
  EXPECT_EQ(record.time_split[0].first, "data");
  // A clock does not run backwards.
  EXPECT_EQ(record.clock, (std::vector<std::pair<int64_t, double>>{{0, 0.5}, {60, 30}, {120, 60}}));
  EXPECT_DOUBLE_EQ(record.ranks[0].peak_memory_bytes, 200);
}

TEST_F(RunFolders, MissingKeysAndWrongTypesAreUnknown) {
  for (const char* text : {"{}", R"({"status": 3, "metrics": [1], "argv": "levin", "clock": [1, [2], ["a", 3]], "step":
      "many", "monitor": 1, "ranks": {"a": 1}, "time_split": [], "sessions": [1], "started": null})"}) {
    const RunRecord record = read(text);
    EXPECT_TRUE(record.has_record);
    EXPECT_EQ(record.status, RunStatus::unknown);
    EXPECT_EQ(record.step, -1);
    EXPECT_TRUE(record.metrics.empty());
    EXPECT_TRUE(record.clock.empty());
    EXPECT_TRUE(std::isnan(record.started));
    EXPECT_TRUE(std::isnan(record.duration()) || record.duration() == 0);
  }
}

TEST_F(RunFolders, AmountsThatNoMachineHasAreUnknown) {
  for (const char* amount : {"1e300", "-1", "\"inf\"", "18446744073709551615"}) {
    const RunRecord record =
        read(std::string(R"({"rates": {"samples_per_second": )") + amount + R"(}, "remaining_seconds": )" + amount +
             R"(, "ranks": [{"memory_bytes": )" + amount + R"(, "peak_memory_bytes": )" + amount + "}]}");
    ASSERT_EQ(record.ranks.size(), 1U);
    EXPECT_TRUE(std::isnan(record.ranks[0].memory_bytes)) << amount;
    EXPECT_TRUE(std::isnan(record.ranks[0].peak_memory_bytes)) << amount;
    EXPECT_TRUE(std::isnan(record.samples_per_second)) << amount;
    EXPECT_TRUE(std::isnan(record.remaining_seconds)) << amount;
  }
}

TEST_F(RunFolders, ABrokenRecordIsNamed) {
  for (const char* text : {"", "{\"status\": \"run", "[1, 2]", "\xff\xfe"}) {
    const RunRecord record = read(text);
    EXPECT_FALSE(record.has_record);
    EXPECT_EQ(record.unreadable, folder_ / "run.json" + ": expected a JSON object") << text;
  }
}

TEST_F(RunFolders, ARunWhoseProcessIsGoneWasKilled) {
  EXPECT_EQ(read(running_record(host_name(), pid_that_is_gone(), now())).status, RunStatus::killed);
}

TEST_F(RunFolders, AKilledRunLastedUntilItsLastSignOfLife) {
  RunRecord record = read(R"({"status": "running", "host": "another-machine", "started": 1000, "updated": 1012,
    "sessions": [{"started": 1000, "ended": null, "first_step": 0, "status": "running"}]})");
  EXPECT_EQ(record.status, RunStatus::killed);
  EXPECT_DOUBLE_EQ(record.ended, 1012);
  EXPECT_DOUBLE_EQ(record.duration(), 12);
  EXPECT_EQ(record.sessions[0].status, "killed");
  folder_.write("metrics.csv", "step,loss\n0,1\n");  // a row from after the last change of run.json
  const double written = 1012.5;
  fs::last_write_time(folder_ / "metrics.csv",
                      fs::file_time_type::clock::now() - std::chrono::duration_cast<fs::file_time_type::duration>(
                                                             std::chrono::duration<double>(now() - written)));
  record = read_run_record(folder_.path());
  EXPECT_NEAR(record.duration(), 12.5, 0.1);
}

TEST_F(RunFolders, AnEarlierSessionThatRecordedNoEndLastedAsLongAsItTrained) {
  const RunRecord record = read(R"({"status": "success", "started": 1000, "updated": 2020, "ended": 2020,
    "clock": [[0, 0], [40, 20], [60, 30], [100, 45]],
    "sessions": [{"started": 1000, "ended": null, "first_step": 0, "status": "running"},
                 {"started": 2000, "ended": 2020, "first_step": 60, "status": "success"}]})");
  EXPECT_EQ(record.sessions[0].status, "killed");
  EXPECT_DOUBLE_EQ(record.sessions[0].ended, 1030);
  EXPECT_DOUBLE_EQ(record.duration(), 50);
}

TEST_F(RunFolders, ARunWhoseProcessIsThereIsRunning) {
  EXPECT_EQ(read(running_record(host_name(), ::getpid(), now() + 5)).status, RunStatus::running);
}

TEST_F(RunFolders, AProcessThatStartedAfterTheLastUpdateIsADifferentOne) {
  EXPECT_EQ(read(running_record(host_name(), ::getpid(), 1.7e9)).status, RunStatus::killed);
}

TEST_F(RunFolders, TheHolderOfTheLockIsAliveForAnyProcessId) {
  const FolderLock lock(folder_.path(), std::chrono::milliseconds(0));
  EXPECT_TRUE(is_folder_locked(folder_.path()));
  EXPECT_EQ(read(running_record(host_name(), pid_that_is_gone(), now())).status, RunStatus::running);
}

TEST_F(RunFolders, AskingForTheLockLeavesItFree) {
  folder_.write("run.lock", "host\n1\n");
  EXPECT_FALSE(is_folder_locked(folder_.path()));
  const FolderLock lock(folder_.path(), std::chrono::milliseconds(0));
  EXPECT_TRUE(lock.is_held());
}

TEST_F(RunFolders, ARunOnAnotherMachineIsAliveWhileItReports) {
  EXPECT_EQ(read(running_record("another-machine", 1, now() - 2)).status, RunStatus::running);
  EXPECT_EQ(read(running_record("another-machine", 1, now() - 3600)).status, RunStatus::killed);
}

TEST_F(RunFolders, RunsWithoutARecordHaveTheTimesOfTheirFiles) {
  folder_.write("hparams.yaml", "lr: 1\n");
  folder_.write("metrics.csv", "epoch,step,loss\n");
  const RunRecord record = read_run_record(folder_.path());
  EXPECT_FALSE(record.has_record);
  EXPECT_EQ(record.unreadable, "");
  EXPECT_EQ(record.status, RunStatus::unknown);
  EXPECT_NEAR(record.started, now(), 60);
  EXPECT_GE(record.duration(), 0);
}

TEST_F(RunFolders, AreFoundAtAnyDepthInTheOrderOfTheirNumbers) {
  for (const char* name : {"a/version_10", "a/version_9", "b", "c", "c/checkpoints/x", ".hidden", "d"}) {
    fs::create_directories(folder_ / name);
  }
  for (const char* name : {"a/version_10", "a/version_9", "c/checkpoints/x", ".hidden"}) {
    folder_.write(std::string(name) + "/run.json", "{}");
  }
  folder_.write("b/metrics.csv", "step\n");
  folder_.write("b/hparams.yaml", "");
  folder_.write("c/metrics.csv", "step\n");  // of something else
  fs::create_directory_symlink(folder_ / "a", folder_ / "d/again");
  const FoundRuns found = find_run_folders(folder_.path());
  EXPECT_EQ(found.folders,
            (std::vector<std::string>{folder_ / "a/version_9", folder_ / "a/version_10", folder_ / "b"}));
  EXPECT_TRUE(found.unreadable.empty());
}

// No process writes to them, so that a read that waits never ends.
TEST_F(RunFolders, AFifoInPlaceOfAFileIsNamedAndNotWaitedFor) {
  for (const char* name : {"run.json", "hparams.yaml", "config.yaml", "metrics.csv"}) {
    ASSERT_EQ(::mkfifo((folder_ / name).c_str(), 0600), 0);
  }
  EXPECT_EQ(find_run_folders(folder_.path()).folders, std::vector<std::string>{folder_.path()});
  const RunRecord record = read_run_record(folder_.path());
  EXPECT_FALSE(record.has_record);
  EXPECT_EQ(record.unreadable, "cannot read " + folder_ / "run.json" + ": it is a FIFO, not a regular file.");
  EXPECT_EQ(
      read_run_options(folder_.path()).problems,
      (std::vector<std::string>{"cannot read " + folder_ / "hparams.yaml" + ": it is a FIFO, not a regular file.",
                                "cannot read " + folder_ / "config.yaml" + ": it is a FIFO, not a regular file."}));
  EXPECT_EQ(test::error_of([&] { MetricsReader(folder_.path()).update(); }),
            folder_ / "metrics.csv" + ": it is not a regular file, and is left out.");
  EXPECT_EQ(read_runs({folder_.path()}, "").size(), 1U);
  EXPECT_EQ(collect_report({folder_.path()}).runs.size(), 1U);
}

TEST_F(RunFolders, AFolderThatIsNotThereIsAnError) {
  EXPECT_EQ(test::error_of([&] { (void)find_run_folders(folder_ / "none"); }),
            folder_ / "none" + ": the folder does not exist. Name a folder that has runs below it, e.g. levin_logs.");
  folder_.write("file", "");
  EXPECT_EQ(test::error_of([&] { (void)find_run_folders(folder_ / "file"); }),
            folder_ / "file" + ": it is a file, not a folder. Name a folder that has runs below it, e.g. levin_logs.");
}

TEST(NaturalOrder, CountsNumbersWithinNames) {
  const std::vector<std::string> sorted{"a", "a1", "a2", "a10", "a10b", "a010c", "b0"};
  for (size_t i = 0; i < sorted.size(); ++i) {
    for (size_t j = 0; j < sorted.size(); ++j) EXPECT_EQ(natural_less(sorted[i], sorted[j]), i < j) << i << " " << j;
  }
  EXPECT_TRUE(natural_less("01", "1"));
  EXPECT_FALSE(natural_less("1", "01"));
}

}  // namespace
}  // namespace levin::run_folder_test
