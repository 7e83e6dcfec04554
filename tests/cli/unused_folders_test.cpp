// Runs that leave no result leave no folder: the real tool.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "levin/core/files/files.h"
#include "levin/core/process/main_guard.h"
#include "support/error_text.h"
#include "support/levin_runs.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace levin::unused_folders_test {
namespace {

namespace fs = std::filesystem;

class UnusedFolders : public ::testing::Test {
 protected:
  test::Ran levin(const std::string& command, const std::string& arguments = "") const {
    return test::run_levin(
        command + " --config " + test::source_dir() +
            "/configs/fashion_mnist.yaml --trainer.accelerator=cpu --trainer.limit_train_batches=3 "
            "--trainer.max_epochs=1 --trainer.limit_val_batches=1 --trainer.limit_test_batches=1 "
            "--trainer.limit_predict_batches=1 --trainer.oversubscribe=true --test_after_fit=false " +
            arguments,
        folder_.path());
  }
  [[nodiscard]] std::vector<std::string> versions() const {
    std::vector<std::string> names;
    if (!fs::exists(folder_.path() + "/levin_logs")) return names;
    for (const auto& entry : fs::directory_iterator(folder_.path() + "/levin_logs"))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

  test::TemporaryFolder folder_;
};

TEST_F(UnusedFolders, APredictionLeavesNone) {
  for (int k = 0; k < 2; ++k) EXPECT_EQ(levin("predict").status, kExitOk);
  EXPECT_TRUE(versions().empty());
}

TEST_F(UnusedFolders, APredictionThatWritesIntoItsFolderLeavesIt) {
  EXPECT_EQ(
      levin("predict", "--trainer.callbacks+=\"{class_path: PredictionWriter, init_args: {output: out.csv}}\"").status,
      kExitOk);
  EXPECT_TRUE(versions().empty() || fs::exists(folder_.path() + "/levin_logs/version_0/out.csv"));
}

TEST_F(UnusedFolders, AFitThatFailsInItsFirstBatchLeavesNone) {
  const auto done = levin("fit", "--model=EightWeights");  // which is for other data
  EXPECT_NE(done.status, kExitOk) << done.output;
  EXPECT_TRUE(versions().empty()) << done.output;
}

TEST_F(UnusedFolders, ARunThatTrainsOrLogsKeepsItsOwn) {
  EXPECT_EQ(levin("fit").status, kExitOk);
  EXPECT_EQ(levin("predict").status, kExitOk);
  EXPECT_EQ(levin("fit", "--trainer.enable_checkpointing=false --trainer.callbacks=[]").status, kExitOk);
  EXPECT_EQ(versions(), (std::vector<std::string>{"version_0", "version_1"}));
  EXPECT_TRUE(fs::exists(folder_.path() + "/levin_logs/version_1/config.yaml"));
}

TEST_F(UnusedFolders, ATestThatPrintsItsMetricsLeavesNone) {
  for (int k = 0; k < 2; ++k) {
    const auto done = levin("test");
    EXPECT_EQ(done.status, kExitOk) << done.output;
    EXPECT_NE(done.output.find("test_acc"), std::string::npos) << done.output;
    EXPECT_EQ(levin("validate").status, kExitOk);
  }
  EXPECT_TRUE(versions().empty());
}

TEST_F(UnusedFolders, ATestWithALoggerOfItsOwnKeepsWhatThatHasWritten) {
  EXPECT_EQ(levin("test", "--trainer.logger=CSVLogger").status, kExitOk);
  EXPECT_TRUE(fs::exists(folder_.path() + "/levin_logs/version_0/metrics.csv"));
}

TEST_F(UnusedFolders, AFolderThatWasThereStays) {
  fs::create_directories(folder_.path() + "/levin_logs/mine");
  write_file_durably(folder_.path() + "/levin_logs/mine/note.txt", "kept");
  EXPECT_EQ(levin("predict", "--trainer.logger=\"{class_path: CSVLogger, init_args: {version: mine}}\"").status,
            kExitOk);
  EXPECT_EQ(read_file(folder_.path() + "/levin_logs/mine/note.txt"), "kept");
}

}  // namespace
}  // namespace levin::unused_folders_test
