#include "levin/loggers/csv_logger.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "levin/core/error.h"
#include "levin/core/files.h"
#include "support/captured_console.h"
#include "support/temporary_folder.h"

namespace levin::csv_logger_test {
namespace {

using test::CapturedConsole;
using test::TemporaryFolder;

CsvLoggerOptions in(const TemporaryFolder& folder, int64_t flush = 1) {
  return {.save_dir = folder.path(), .name = "logs", .version = "", .flush_logs_every_n_steps = flush};
}

TEST(CsvLogger, WritesRowsAsLightningDoes) {
  const TemporaryFolder folder;
  CsvLogger logger(in(folder));
  logger.start("", false);
  logger.log_metrics({{"train_loss", 0.5}, {"epoch", 0}}, 49);
  logger.log_metrics({{"train_loss", 0.25}, {"epoch", 1}}, 99);
  EXPECT_EQ(read_file(logger.metrics_path()), "epoch,step,train_loss\n0,49,0.5\n1,99,0.25\n");
}

TEST(CsvLogger, ANewColumnKeepsTheOldRows) {
  const TemporaryFolder folder;
  CsvLogger logger(in(folder));
  logger.start("", false);
  logger.log_metrics({{"b", 1.0}}, 0);
  logger.log_metrics({{"a", 2.5}}, 1);
  EXPECT_EQ(read_file(logger.metrics_path()), "a,b,step\n,1.0,0\n2.5,,1\n");
}

TEST(CsvLogger, TakesTheFirstFreeVersion) {
  const TemporaryFolder folder;
  make_folder(folder / "logs/version_0");
  CsvLogger logger(in(folder));
  logger.start("", false);
  EXPECT_EQ(logger.log_dir(), folder / "logs/version_1");
  CsvLogger named({.save_dir = folder.path(), .name = "logs", .version = "mine"});
  named.start("", false);
  EXPECT_EQ(named.log_dir(), folder / "logs/mine");
}

TEST(CsvLogger, KeepsRowsUntilTheyAreDueOrTheRunEnds) {
  const TemporaryFolder folder;
  CsvLogger logger(in(folder, 3));
  logger.start("", false);
  logger.log_metrics({{"x", 1}}, 0);
  logger.log_metrics({{"x", 2}}, 1);
  EXPECT_THROW((void)read_file(logger.metrics_path()), Error);
  logger.log_metrics({{"x", 3}}, 2);
  EXPECT_EQ(read_file(logger.metrics_path()), "step,x\n0,1.0\n1,2.0\n2,3.0\n");
  logger.log_metrics({{"x", 4}}, 3);
  logger.finalize("failed");
  EXPECT_EQ(read_file(logger.metrics_path()), "step,x\n0,1.0\n1,2.0\n2,3.0\n3,4.0\n");
}

TEST(CsvLogger, WritesNanInfinityAndExactNumbers) {
  const TemporaryFolder folder;
  CsvLogger logger(in(folder));
  logger.start("", false);
  logger.log_metrics({{"a", NAN}, {"b", INFINITY}, {"c", -INFINITY}, {"d", 0.1}, {"e", 1e-20}}, 0);
  EXPECT_EQ(read_file(logger.metrics_path()), "a,b,c,d,e,step\nnan,inf,-inf,0.1,1e-20,0\n");
}

TEST(CsvLogger, QuotesColumnsThatHoldACommaAndKeepsTheirValues) {
  const TemporaryFolder folder;
  CsvLogger logger(in(folder));
  logger.start("", false);
  logger.log_metrics({{"a,b", 1.5}, {"say \"x\"", 2.5}}, 0);
  logger.log_metrics({{"z", 3.5}}, 1);
  EXPECT_EQ(read_file(logger.metrics_path()), "\"a,b\",\"say \"\"x\"\"\",step,z\n1.5,2.5,0,\n,,1,3.5\n");
}

TEST(CsvLogger, ANamedVersionGoesOnWithItsFile) {
  const TemporaryFolder folder;
  for (const char* name : {"a", "b"}) {
    CsvLogger logger({.save_dir = folder.path(), .name = "logs", .version = "mine"});
    logger.start("", false);
    logger.log_metrics({{name, 1.0}}, 7);
  }
  EXPECT_EQ(read_file(folder / "logs/mine/metrics.csv"), "a,b,step\n1.0,,7\n,1.0,7\n");
}

TEST(CsvLogger, KeepsTheHyperParameters) {
  const TemporaryFolder folder;
  CsvLogger logger(in(folder));
  logger.start("", false);
  ConfigNode hparams = ConfigNode::map();
  hparams.set("lr", ConfigNode::scalar("1e-3"));
  logger.log_hyperparams(hparams);
  EXPECT_EQ(read_file(logger.log_dir() + "/hparams.yaml"), "lr: 1e-3\n");
}

TEST(CsvLogger, NamesTheFileItCannotWrite) {
  const TemporaryFolder folder;
  CsvLogger logger(in(folder));
  logger.start("", false);
  logger.log_metrics({{"x", 1}}, 0);
  make_folder(folder / "moved");
  std::filesystem::remove_all(logger.log_dir());
  const CapturedConsole console;
  logger.log_metrics({{"x", 2}}, 1);
  EXPECT_TRUE(console.has(logger.metrics_path()) && console.has("No such file")) << console.text();
}

TEST(CsvLogger, GoesBackToTheRowsAndColumnsOfACheckpoint) {
  const TemporaryFolder folder;
  CsvLogger logger({.save_dir = folder.path()});
  logger.start("", false);
  logger.log_metrics({{"b", 1.0}}, 0);
  logger.save();
  const std::string before = read_file(logger.metrics_path());
  const State state = logger.state();
  logger.log_metrics({{"a", 2.0}, {"b", 3.0}}, 1);  // a new column: the file is written anew
  logger.save();
  EXPECT_NE(read_file(logger.metrics_path()), before);
  CsvLogger again({.save_dir = folder.path()});
  again.start("", true);
  EXPECT_EQ(again.log_dir(), logger.log_dir());
  again.load_state(state);
  EXPECT_EQ(read_file(again.metrics_path()), before);
  again.log_metrics({{"b", 5.0}}, 1);
  again.save();
  EXPECT_EQ(read_file(again.metrics_path()), before + "5.0,1\n");
}

TEST(CsvLogger, DropsALineThatAKilledProcessLeftHalfWritten) {
  const TemporaryFolder folder;
  CsvLogger logger({.save_dir = folder.path()});
  logger.start("", false);
  logger.log_metrics({{"b", 1.0}}, 0);
  logger.save();
  const std::string whole = read_file(logger.metrics_path());
  std::ofstream(logger.metrics_path(), std::ios::app) << "2.";
  const State state = logger.state();
  CsvLogger again({.save_dir = folder.path()});
  again.start("", true);
  again.load_state(state);
  EXPECT_EQ(read_file(again.metrics_path()), whole);
}

TEST(CsvLogger, StartsOverWhereNothingWasSaved) {
  const TemporaryFolder folder;
  CsvLogger logger({.save_dir = folder.path()});
  logger.start("", false);
  logger.log_metrics({{"b", 1.0}}, 0);
  logger.save();
  CsvLogger again({.save_dir = folder.path()});
  again.start("", true);
  again.load_state(State());
  EXPECT_FALSE(std::filesystem::exists(again.metrics_path()));
  CsvLogger other({.save_dir = folder.path()});
  other.start("", false);
  EXPECT_TRUE(other.log_dir().ends_with("version_1"));
  EXPECT_EQ(other.earlier_log_dirs(), std::vector<std::string>{logger.log_dir()});
}

TEST(CsvLogger, SaysSoIfRowsOfTheCheckpointAreMissing) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  CsvLogger logger({.save_dir = folder.path()});
  logger.start("", false);
  logger.log_metrics({{"b", 1.0}}, 0);
  logger.save();
  State state = logger.state();
  state.set<int64_t>("rows", 3);
  logger.load_state(state);
  EXPECT_TRUE(console.has("holds 1 rows where the checkpoint counts 3")) << console.text();
}

TEST(CsvLogger, KeepsRowsInMemoryWhileTheyCannotBeWritten) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  CsvLogger logger({.save_dir = folder.path(), .flush_logs_every_n_steps = 1});
  logger.start("", false);
  logger.log_metrics({{"b", 1.0}}, 0);
  const std::string aside = folder / "aside";
  std::filesystem::rename(logger.metrics_path(), aside);
  std::filesystem::create_directory(logger.metrics_path());  // nothing can be written there
  logger.log_metrics({{"b", 2.0}}, 1);
  logger.log_metrics({{"b", 3.0}}, 2);
  EXPECT_TRUE(console.has(logger.metrics_path()) && console.has("training goes on")) << console.text();
  EXPECT_EQ(console.lines().size(), 1U) << "told once";
  std::filesystem::remove(logger.metrics_path());
  std::ofstream(aside, std::ios::app) << "2.0,1\n3.";  // what a full disk leaves of an append
  std::filesystem::rename(aside, logger.metrics_path());
  logger.log_metrics({{"b", 4.0}}, 3);
  EXPECT_EQ(read_file(logger.metrics_path()), "b,step\n1.0,0\n2.0,1\n3.0,2\n4.0,3\n");
}

}  // namespace
}  // namespace levin::csv_logger_test
