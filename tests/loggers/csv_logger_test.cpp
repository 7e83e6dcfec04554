#include "levin/loggers/csv_logger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "levin/cli/runs/metrics_reader.h"
#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/options/registry.h"
#include "support/captured_console.h"
#include "support/file_size_limit.h"
#include "support/temporary_folder.h"

namespace levin::csv_logger_test {
namespace {

using test::CapturedConsole;
using test::FileSizeLimit;
using test::TemporaryFolder;

CSVLoggerOptions in(const TemporaryFolder& folder, int64_t flush = 1) {
  return {.save_dir = folder.path(), .name = "logs", .version = "", .flush_logs_every_n_steps = flush};
}

static_assert(!detail::may_copy<CSVLogger>(), "a logger that is passed by name is a compile error");

TEST(CSVLogger, WritesRowsAsLightningDoes) {
  const TemporaryFolder folder;
  CSVLogger logger(in(folder));
  logger.start("", false);
  logger.log_metrics({{"train_loss", 0.5}, {"epoch", 0}}, 49);
  logger.log_metrics({{"train_loss", 0.25}, {"epoch", 1}}, 99);
  EXPECT_EQ(read_file(logger.metrics_path()), "epoch,step,train_loss\n0,49,0.5\n1,99,0.25\n");
}

TEST(CSVLogger, ANewColumnKeepsTheOldRows) {
  const TemporaryFolder folder;
  CSVLogger logger(in(folder));
  logger.start("", false);
  logger.log_metrics({{"b", 1.0}}, 0);
  logger.log_metrics({{"a", 2.5}}, 1);
  EXPECT_EQ(read_file(logger.metrics_path()), "a,b,step\n,1.0,0\n2.5,,1\n");
}

TEST(CSVLogger, TakesTheFirstFreeVersion) {
  const TemporaryFolder folder;
  make_folder(folder / "logs/version_0");
  CSVLogger logger(in(folder));
  logger.start("", false);
  EXPECT_EQ(logger.log_dir(), folder / "logs/version_1");
  CSVLogger named({.save_dir = folder.path(), .name = "logs", .version = "mine"});
  named.start("", false);
  EXPECT_EQ(named.log_dir(), folder / "logs/mine");
}

TEST(CSVLogger, KeepsRowsUntilTheyAreDueOrTheRunEnds) {
  const TemporaryFolder folder;
  CSVLogger logger(in(folder, 3));
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

TEST(CSVLogger, WritesNanInfinityAndExactNumbers) {
  const TemporaryFolder folder;
  CSVLogger logger(in(folder));
  logger.start("", false);
  logger.log_metrics({{"a", NAN}, {"b", INFINITY}, {"c", -INFINITY}, {"d", 0.1}, {"e", 1e-20}}, 0);
  EXPECT_EQ(read_file(logger.metrics_path()), "a,b,c,d,e,step\nnan,inf,-inf,0.1,1e-20,0\n");
}

TEST(CSVLogger, QuotesColumnsThatHoldACommaAndKeepsTheirValues) {
  const TemporaryFolder folder;
  CSVLogger logger(in(folder));
  logger.start("", false);
  logger.log_metrics({{"a,b", 1.5}, {"say \"x\"", 2.5}}, 0);
  logger.log_metrics({{"z", 3.5}}, 1);
  EXPECT_EQ(read_file(logger.metrics_path()), "\"a,b\",\"say \"\"x\"\"\",step,z\n1.5,2.5,0,\n,,1,3.5\n");
}

TEST(CSVLogger, ANamedVersionContinuesItsFile) {
  const TemporaryFolder folder;
  for (const char* name : {"a", "b"}) {
    CSVLogger logger({.save_dir = folder.path(), .name = "logs", .version = "mine"});
    logger.start("", false);
    logger.log_metrics({{name, 1.0}}, 7);
  }
  EXPECT_EQ(read_file(folder / "logs/mine/metrics.csv"), "a,b,step\n1.0,,7\n,1.0,7\n");
}

TEST(CSVLogger, KeepsTheHyperParameters) {
  const TemporaryFolder folder;
  CSVLogger logger(in(folder));
  logger.start("", false);
  ConfigNode hparams = ConfigNode::map();
  hparams.set("lr", ConfigNode::scalar("1e-3"));
  logger.log_hyperparams(hparams);
  EXPECT_EQ(read_file(logger.log_dir() + "/hparams.yaml"), "lr: 1e-3\n");
}

TEST(CSVLogger, NamesTheFileItCannotWrite) {
  const TemporaryFolder folder;
  CSVLogger logger(in(folder));
  logger.start("", false);
  logger.log_metrics({{"x", 1}}, 0);
  make_folder(folder / "moved");
  std::filesystem::remove_all(logger.log_dir());
  const CapturedConsole console;
  logger.log_metrics({{"x", 2}}, 1);
  EXPECT_TRUE(console.has(logger.metrics_path()) && console.has("No such file")) << console.text();
}

TEST(CSVLogger, GoesBackToTheRowsAndColumnsOfACheckpoint) {
  const TemporaryFolder folder;
  CSVLogger logger({.save_dir = folder.path()});
  logger.start("", false);
  logger.log_metrics({{"b", 1.0}}, 0);
  logger.save();
  const std::string before = read_file(logger.metrics_path());
  const State state = logger.state_dict();
  logger.log_metrics({{"a", 2.0}, {"b", 3.0}}, 1);  // a new column: the file is written anew
  logger.save();
  EXPECT_NE(read_file(logger.metrics_path()), before);
  CSVLogger again({.save_dir = folder.path()});
  again.start("", true);
  EXPECT_EQ(again.log_dir(), logger.log_dir());
  again.load_state_dict(state);
  EXPECT_EQ(read_file(again.metrics_path()), before);
  again.log_metrics({{"b", 5.0}}, 1);
  again.save();
  EXPECT_EQ(read_file(again.metrics_path()), before + "5.0,1\n");
}

TEST(CSVLogger, DropsALineThatAKilledProcessLeftHalfWritten) {
  const TemporaryFolder folder;
  CSVLogger logger({.save_dir = folder.path()});
  logger.start("", false);
  logger.log_metrics({{"b", 1.0}}, 0);
  logger.save();
  const std::string whole = read_file(logger.metrics_path());
  std::ofstream(logger.metrics_path(), std::ios::app) << "2.";
  const State state = logger.state_dict();
  CSVLogger again({.save_dir = folder.path()});
  again.start("", true);
  again.load_state_dict(state);
  EXPECT_EQ(read_file(again.metrics_path()), whole);
}

TEST(CSVLogger, StartsOverWhereNothingWasSaved) {
  const TemporaryFolder folder;
  CSVLogger logger({.save_dir = folder.path()});
  logger.start("", false);
  logger.log_metrics({{"b", 1.0}}, 0);
  logger.save();
  CSVLogger again({.save_dir = folder.path()});
  again.start("", true);
  again.load_state_dict(State());
  EXPECT_FALSE(std::filesystem::exists(again.metrics_path()));
  CSVLogger other({.save_dir = folder.path()});
  other.start("", false);
  EXPECT_TRUE(other.log_dir().ends_with("version_1"));
  EXPECT_EQ(other.earlier_log_dirs(), std::vector<std::string>{logger.log_dir()});
}

TEST(CSVLogger, ReportsItIfRowsOfTheCheckpointAreMissing) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  CSVLogger logger({.save_dir = folder.path()});
  logger.start("", false);
  logger.log_metrics({{"b", 1.0}}, 0);
  logger.save();
  State state = logger.state_dict();
  state.set<int64_t>("rows", 3);
  logger.load_state_dict(state);
  EXPECT_TRUE(console.has("holds 1 row where the checkpoint counts 3")) << console.text();
}

TEST(CSVLogger, KeepsRowsInMemoryWhileTheyCannotBeWritten) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  CSVLogger logger({.save_dir = folder.path(), .flush_logs_every_n_steps = 1});
  logger.start("", false);
  logger.log_metrics({{"b", 1.0}}, 0);
  const std::string aside = folder / "aside";
  std::filesystem::rename(logger.metrics_path(), aside);
  std::filesystem::create_directory(logger.metrics_path());  // nothing can be written there
  logger.log_metrics({{"b", 2.0}}, 1);
  logger.log_metrics({{"b", 3.0}}, 2);
  EXPECT_TRUE(console.has(logger.metrics_path()) && console.has("training continues")) << console.text();
  EXPECT_EQ(console.lines().size(), 1U) << "warned once";
  std::filesystem::remove(logger.metrics_path());
  std::ofstream(aside, std::ios::app) << "2.0,1\n3.";  // what a full disk leaves of an append
  std::filesystem::rename(aside, logger.metrics_path());
  logger.log_metrics({{"b", 4.0}}, 3);
  EXPECT_EQ(read_file(logger.metrics_path()), "b,step\n1.0,0\n2.0,1\n3.0,2\n4.0,3\n");
}

TEST(CSVLogger, WritesAHeaderAgainWhereTheFileWasRemoved) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  CSVLogger logger(in(folder));
  logger.start("", false);
  logger.log_metrics({{"b", 1.0}}, 0);
  logger.log_metrics({{"b", 2.0}}, 1);
  std::filesystem::remove(logger.metrics_path());
  logger.log_metrics({{"b", 3.0}}, 2);
  logger.log_metrics({{"b", 4.0}}, 3);
  EXPECT_EQ(read_file(logger.metrics_path()), "b,step\n3.0,2\n4.0,3\n");
  EXPECT_TRUE(
      console.has("warning: CSVLogger: " + logger.metrics_path() + " was removed. The 2 rows that it held are lost"))
      << console.text();
  const State state = logger.state_dict();
  EXPECT_EQ(state.get<int64_t>("rows"), 2);
}

TEST(CSVLogger, ContinuesWithAFileThatWasReplacedByOneWithOtherColumns) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  CSVLogger logger(in(folder));
  logger.start("", false);
  logger.log_metrics({{"b", 1.0}}, 0);
  logger.log_metrics({{"b", 2.0}}, 1);
  write_file_durably(logger.metrics_path(), "b,note,step\n1.0,mine,0\n");
  logger.log_metrics({{"b", 3.0}}, 2);
  EXPECT_EQ(read_file(logger.metrics_path()), "b,note,step\n1.0,mine,0\n3.0,,2\n");
  EXPECT_TRUE(console.has("was changed by another program: of the 2 rows written, 1 are left")) << console.text();
  std::ofstream(logger.metrics_path(), std::ios::trunc).close();  // emptied in place
  logger.log_metrics({{"b", 4.0}}, 3);
  EXPECT_EQ(read_file(logger.metrics_path()), "b,note,step\n4.0,,3\n");
}

TEST(CSVLogger, RefusesNamesThatHoldControlCharacters) {
  const TemporaryFolder folder;
  CSVLogger logger(in(folder));
  logger.start("", false);
  for (const char* name : {"a\nb", "a\rb", "\x1b[2J", "tab\t", "\x7f", "next\xc2\x85line", "\xe2\x80\xa8"}) {
    EXPECT_THROW(logger.log_metrics({{"good", 1.0}, {name, 1.0}}, 0), Error) << name;
  }
  try {
    logger.log_metrics({{"a\nb", 1.0}}, 0);
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("\"a\\nb\" holds a line end"), std::string::npos) << error.what();
  }
  logger.log_metrics({{"größe", 1.0}}, 0);
  EXPECT_EQ(read_file(logger.metrics_path()), "größe,step\n1.0,0\n");
}

TEST(CSVLogger, ReadsAHeaderWithALineEndThatAnEarlierVersionWrote) {
  const TemporaryFolder folder;
  make_folder(folder / "logs/mine");
  write_file_durably(folder / "logs/mine/metrics.csv", "\"a\nb\",step\n1.0,0\n");
  CSVLogger logger({.save_dir = folder.path(), .name = "logs", .version = "mine", .flush_logs_every_n_steps = 1});
  logger.start("", false);
  logger.log_metrics({{"c", 2.0}}, 1);
  EXPECT_EQ(read_file(logger.metrics_path()), "\"a\nb\",c,step\n1.0,,0\n,2.0,1\n");
}

TEST(CSVLogger, CountsTheRowsThatAreLostWhenTheRunEnds) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  {
    CSVLogger logger(in(folder));
    logger.start("", false);
    make_folder(logger.metrics_path());  // nothing can be written there
    for (int64_t step = 0; step < 200; ++step) logger.log_metrics({{"b", 1.0}}, step);
    EXPECT_EQ(console.lines().size(), 1U) << "warned once: " << console.text();
    logger.finalize("success");
    EXPECT_TRUE(console.has("error: CSVLogger: 200 rows of metrics are lost: ") && console.has("Is a directory"))
        << console.text();
  }
  EXPECT_EQ(console.lines().size(), 2U) << console.text();
}

TEST(CSVLogger, ReportsWhenTheDiskTakesRowsAgain) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  CSVLogger logger(in(folder));
  logger.start("", false);
  make_folder(logger.metrics_path());
  for (int64_t step = 0; step < 50; ++step) logger.log_metrics({{"b", 1.0}}, step);
  std::filesystem::remove(logger.metrics_path());
  logger.finalize("success");
  EXPECT_TRUE(console.has("can be written again. It has the 50 rows that waited.")) << console.text();
  EXPECT_FALSE(console.has("lost")) << console.text();
  EXPECT_EQ(read_file(logger.metrics_path()).size(), std::string("b,step\n").size() + 10 * 6 + 40 * 7);
}

// What this process has handed to the kernel to write so far, and how often.
struct Work {
  uint64_t bytes = 0;
  uint64_t calls = 0;
};
Work work_so_far() {
  std::ifstream file("/proc/self/io");
  Work work;
  std::string name;
  for (uint64_t value = 0; file >> name >> value;) {
    if (name == "wchar:") work.bytes = value;
    if (name == "syscw:") work.calls = value;
  }
  return work;
}

TEST(CSVLogger, TriesAFullDiskLessAndLessOften) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  CSVLogger logger(in(folder));
  logger.start("", false);
  for (int64_t step = 0; step < 1000; ++step) logger.log_metrics({{"b", 0.125}}, step);
  const uint64_t size = std::filesystem::file_size(logger.metrics_path());
  Work start, end;
  {
    const FileSizeLimit full(size + 5);  // the next row does not fit
    start = work_so_far();
    for (int64_t step = 1000; step < 11000; ++step) logger.log_metrics({{"b", 0.125}}, step);
    end = work_so_far();
  }
  EXPECT_LT(end.calls - start.calls, 100u);
  EXPECT_LT(end.bytes - start.bytes, 1000u) << "the file is not written anew";
  EXPECT_EQ(std::filesystem::file_size(logger.metrics_path()), size) << "no half row stays";
  logger.finalize("success");
  const std::string text = read_file(logger.metrics_path());
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 11001);
  EXPECT_TRUE(text.ends_with("0.125,10999\n"));
}

TEST(CSVLogger, WritesManyColumnsThatComeOneByOneAtTheCostOfAFewFiles) {
  const TemporaryFolder folder;
  CSVLogger logger(in(folder, 1));
  logger.start("", false);
  constexpr int64_t kNames = 3000;
  const Work start = work_so_far();
  for (int64_t k = 0; k < kNames; ++k) logger.log_metrics({{"m" + std::to_string(k), 1.5}}, k);
  logger.finalize("success");
  const Work end = work_so_far();
  const std::string text = read_file(logger.metrics_path());
  EXPECT_LT(end.bytes - start.bytes, 6 * text.size() + (16 << 20)) << text.size();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), kNames + 1);
  std::istringstream lines(text);
  std::string line;
  for (int64_t k = -1; k < kNames; ++k) {
    std::getline(lines, line);
    ASSERT_EQ(std::count(line.begin(), line.end(), ','), kNames) << "row " << k;
  }
  EXPECT_TRUE(line.ends_with("," + std::to_string(kNames - 1))) << "step sorts last";
}

TEST(CSVLogger, WritesAColumnThatIsNewAfterManyRowsAtOnce) {
  const TemporaryFolder folder;
  CSVLogger logger(in(folder, 1));
  logger.start("", false);
  for (int64_t k = 0; k < 5000; ++k) logger.log_metrics({{"a", 1.5}}, k);
  logger.log_metrics({{"late", 2.5}}, 5000);
  EXPECT_TRUE(read_file(logger.metrics_path()).ends_with("\n,2.5,5000\n"));
}

TEST(CSVLogger, MetricsReaderFollowsNewColumnsAndACut) {
  const TemporaryFolder folder;
  CSVLogger logger({.save_dir = folder.path(), .name = "", .version = "run", .flush_logs_every_n_steps = 1});
  logger.start("", false);
  logger.own_folder();
  MetricsReader reader(folder / "run");
  logger.log_metrics({{"loss", 0.1}}, {0});
  logger.save();
  const State early = logger.state_dict();
  EXPECT_TRUE(reader.update());
  logger.log_metrics({{"a, \"b\"", 1e-300}, {"loss", std::nan("")}}, {1});
  logger.log_metrics({{"loss", -INFINITY}}, {2});
  logger.save();
  EXPECT_TRUE(reader.update());
  EXPECT_EQ(reader.series().at("loss").steps, (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(reader.series().at("loss").values[0], 0.1);
  EXPECT_TRUE(std::isnan(reader.series().at("loss").values[1]));
  EXPECT_EQ(reader.series().at("loss").values[2], -INFINITY);
  EXPECT_EQ(reader.series().at("a, \"b\"").values, (std::vector<double>{1e-300}));
  logger.load_state_dict(early);
  for (int64_t step = 1; step < 9; ++step) logger.log_metrics({{"loss", 7.0}}, {step});
  logger.save();
  EXPECT_TRUE(reader.update());
  EXPECT_EQ(reader.series().at("loss").values, (std::vector<double>{0.1, 7, 7, 7, 7, 7, 7, 7, 7}));
  EXPECT_EQ(reader.bad_lines(), 0);
}

}  // namespace
}  // namespace levin::csv_logger_test
