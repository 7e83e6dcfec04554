// Which folder a run gets, alone, in parallel with others, and in a requeued Slurm job.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <latch>
#include <set>
#include <thread>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/loggers/csv_logger.h"
#include "levin/loggers/logger_folder.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::run_folder_test {
namespace {

using test::error_of;
using test::TemporaryFolder;

// This process is in a job of Slurm while one lives.
class InJob {
 public:
  explicit InJob(const char* id) { ::setenv("SLURM_JOB_ID", id, 1); }
  ~InJob() { ::unsetenv("SLURM_JOB_ID"); }
  InJob(const InJob&) = delete;
  InJob& operator=(const InJob&) = delete;
};

CSVLoggerOptions in(const TemporaryFolder& folder) {
  return {.save_dir = folder.path(), .name = ""};
}

TEST(RunFolder, IsTheFirstThatNobodyHas) {
  const TemporaryFolder folder;
  EXPECT_EQ(claim_run_folder(folder / "new"), folder / "new/version_0");
  EXPECT_EQ(claim_run_folder(folder / "new"), folder / "new/version_1");
  make_folder(folder / "new/version_7");
  make_folder(folder / "new/version_x");
  EXPECT_EQ(claim_run_folder(folder / "new"), folder / "new/version_8");
  EXPECT_EQ(run_versions(folder / "new"), (std::vector<int64_t>{0, 1, 7, 8}));
}

TEST(RunFolder, NumbersThatOverflowAndNamesThatOnlyLookLikeOneAreNobodys) {
  const TemporaryFolder folder;
  for (const char* name : {"version_3", "version_007", "version_-5", "version_+6", "version_ 8", "version_9 ",
                           "version_99999999999999999999", "version_9223372036854775807", "version_"}) {
    make_folder(folder / name);
  }
  EXPECT_EQ(run_versions(folder.path()), (std::vector<int64_t>{3}));
  EXPECT_EQ(claim_run_folder(folder.path()), folder / "version_4");
}

TEST(RunFolder, AFileWithItsNameIsPassedOver) {
  const TemporaryFolder folder;
  write_file_durably(folder / "version_0", "a file");
  EXPECT_EQ(claim_run_folder(folder.path()), folder / "version_1");
  std::filesystem::create_symlink("version_2", folder / "version_2");
  EXPECT_EQ(claim_run_folder(folder.path()), folder / "version_3");
}

TEST(RunFolder, WithANulByteItIsRefusedInsteadOfTriedForEver) {
  const TemporaryFolder folder;
  try {
    (void)claim_run_folder(folder / std::string("a\0b", 3));
    ADD_FAILURE() << "was claimed";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("NUL byte"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(folder.names().empty());
}

TEST(RunFolder, IsNobodyElsesThoughManyBeginAtOnce) {
  const TemporaryFolder folder;
  std::vector<std::string> claimed(64);
  std::vector<std::thread> threads;
  for (size_t k = 0; k < 8; ++k) {
    threads.emplace_back([&, k] {
      for (size_t i = 0; i < 8; ++i) claimed[8 * k + i] = claim_run_folder(folder.path());
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(std::set<std::string>(claimed.begin(), claimed.end()).size(), 64u);
}

TEST(RunFolder, IsTheSameForAllThatResumeAtOnce) {
  for (int attempt = 0; attempt < 50; ++attempt) {
    const TemporaryFolder folder;
    std::latch together(4);
    std::vector<std::string> found(4);
    std::vector<std::thread> threads;
    for (std::string& one : found) {
      threads.emplace_back([&] {
        together.arrive_and_wait();
        one = folder_to_resume(folder / "new");
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(std::set<std::string>(found.begin(), found.end()), std::set<std::string>{folder / "new/version_0"});
  }
}

TEST(RunFolder, ToResumeIsTheNewest) {
  const TemporaryFolder folder;
  (void)claim_run_folder(folder.path());
  (void)claim_run_folder(folder.path());
  EXPECT_EQ(folder_to_resume(folder.path()), folder / "version_1");
  EXPECT_EQ(folder.names().size(), 2u);
}

TEST(RunFolder, OfAnEvaluationIsNotResumed) {
  const TemporaryFolder folder;
  for (const char* command : {"fit", "validate", "test", "predict"}) {
    const std::string claimed = claim_run_folder(folder.path());
    write_file_durably(claimed + "/run.json", std::string("{\"command\": \"") + command + "\"}");
  }
  EXPECT_EQ(folder_to_resume(folder.path()), folder / "version_0");
  std::filesystem::remove_all(folder / "version_0");
  EXPECT_EQ(folder_to_resume(folder.path()), folder / "version_4");
  for (const char* unknown : {"{}", "not json", "[]", "{\"command\": 3}"}) {
    write_file_durably(folder / "version_4/run.json", unknown);
    EXPECT_EQ(folder_to_resume(folder.path()), folder / "version_4") << unknown;
  }
}

TEST(RunFolder, ThatCannotBeMadeIsNamed) {
  const TemporaryFolder folder;
  write_file_durably(folder / "file", "x");
  try {
    (void)claim_run_folder(folder / "file");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(folder / "file"), std::string::npos) << error.what();
  }
  for (const auto take : {claim_run_folder, folder_to_resume}) {
    const std::string message = error_of([&] { (void)take(folder / "file/levin_logs"); });
    EXPECT_EQ(message,
              "cannot create the folder " + (folder / "file/levin_logs") +
                  ": Not a directory. The run's logs go there: set another default_root_dir, or save_dir of the "
                  "logger, or logger: false.");
  }
}

TEST(RunFolder, OfAJobIsFoundWhenTheJobIsStartedAgain) {
  const TemporaryFolder folder;
  const InJob job("4711");
  CSVLogger first(in(folder));
  first.start("", false);
  EXPECT_FALSE(std::filesystem::exists(folder / "version_0/slurm_job")) << "another run may be alive there";
  first.own_folder();
  {
    const InJob other("4712");
    CSVLogger stranger(in(folder));
    stranger.start("", false);
    EXPECT_EQ(stranger.log_dir(), folder / "version_1");
  }
  ::setenv("SLURM_JOB_ID", "4711", 1);
  CSVLogger again(in(folder));
  again.start_again("", false);
  EXPECT_EQ(again.log_dir(), folder / "version_0");
  EXPECT_EQ(again.earlier_log_dirs(), (std::vector<std::string>{folder / "version_1"}));
}

TEST(RunFolder, OfAJobThatHadNoneIsNew) {
  const TemporaryFolder folder;
  make_folder(folder / "version_3");
  const InJob job("4711");
  CSVLogger fresh(in(folder));
  fresh.start_again("", false);
  EXPECT_EQ(fresh.log_dir(), folder / "version_4");
  CSVLogger resuming(in(folder));
  resuming.start("", true);
  EXPECT_EQ(resuming.log_dir(), folder / "version_4");
}

TEST(RunFolder, OfADifferentCommandOfTheJobIsNotTaken) {
  const TemporaryFolder folder;
  const InJob job("4711");
  make_folder(folder / "version_0");
  write_file_durably(folder / "version_0/slurm_job", "4711\nlevin fit --config another.yaml \n");
  EXPECT_EQ(folder_of_job(folder.path()), "");
  mark_job(folder / "version_0");
  EXPECT_EQ(folder_of_job(folder.path()), folder / "version_0");
}

TEST(RunFolder, OutsideOfSlurmIsNotMarked) {
  const TemporaryFolder folder;
  CSVLogger logger(in(folder));
  logger.start("", false);
  logger.own_folder();
  EXPECT_FALSE(std::filesystem::exists(folder / "version_0/slurm_job"));
  EXPECT_EQ(folder_of_job(folder.path()), "");
}

}  // namespace
}  // namespace levin::run_folder_test
