#include "levin/loggers/logger_folder.h"

#include <gtest/gtest.h>

#include "levin/loggers/csv_logger.h"
#include "levin/loggers/json_lines_logger.h"
#include "levin/loggers/tensorboard_logger.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::logger_folder_test {
namespace {

using test::error_of;
using test::expect_parts;
using test::TemporaryFolder;

TEST(LoggerFolder, IsSharedByTheLoggersOfOneRun) {
  const TemporaryFolder folder;
  for (int run = 0; run < 2; ++run) {
    CSVLogger csv;
    TensorBoardLogger events;
    JSONLinesLogger lines({.save_dir = folder.path() + "/./"});
    JSONLinesLogger elsewhere({.save_dir = folder.path(), .name = "other"});
    JSONLinesLogger named({.save_dir = folder.path(), .version = "mine"});
    const LoggersOfOneRun together;
    for (Logger* logger : {static_cast<Logger*>(&csv), static_cast<Logger*>(&events), static_cast<Logger*>(&lines),
                           static_cast<Logger*>(&elsewhere), static_cast<Logger*>(&named)}) {
      logger->start(folder.path(), false);
    }
    const std::string version = "version_" + std::to_string(run);
    EXPECT_EQ(csv.log_dir(), folder / ("levin_logs/" + version));
    EXPECT_EQ(events.log_dir(), csv.log_dir());
    EXPECT_EQ(lines.log_dir(), csv.log_dir());
    EXPECT_EQ(elsewhere.log_dir(), folder / ("other/" + version));
    EXPECT_EQ(named.log_dir(), folder / "levin_logs/mine");
  }
}

TEST(LoggerFolder, OfAResumedRunIsTheNewestForAllItsLoggers) {
  const TemporaryFolder folder;
  for (const bool resume : {false, false, true}) {
    CSVLogger csv;
    TensorBoardLogger events;
    const LoggersOfOneRun together;
    csv.start(folder.path(), resume);
    events.start(folder.path(), resume);
    EXPECT_EQ(events.log_dir(), csv.log_dir());
  }
  LoggerFolder next(folder.path(), "levin_logs", "");
  next.start("", false);
  EXPECT_EQ(next.path(), folder / "levin_logs/version_2");
  EXPECT_EQ(next.earlier(),
            (std::vector<std::string>{folder / "levin_logs/version_1", folder / "levin_logs/version_0"}));
}

TEST(LoggerFolder, IsBelowSaveDirForAnyNames) {
  const TemporaryFolder folder;
  for (const std::string& name : {std::string("../x"), std::string("a/../.."), folder / "elsewhere"}) {
    const std::string leads_out = "\"" + name +
                                  "\" leads out of save_dir. Write a name without \"..\" that does not "
                                  "begin with /, and choose the folder with save_dir.";
    for (const bool is_name : {true, false}) {
      const std::string own = is_name ? name : "levin_logs", version = is_name ? "" : name;
      const std::string what = is_name ? "the logger's name: " : "the logger's version: ";
      EXPECT_EQ(error_of([&] { CSVLogger({.save_dir = folder.path(), .name = own, .version = version}); }),
                what + leads_out);
      EXPECT_EQ(error_of([&] { TensorBoardLogger({.save_dir = folder.path(), .name = own, .version = version}); }),
                what + leads_out);
      EXPECT_EQ(error_of([&] { JSONLinesLogger({.save_dir = folder.path(), .name = own, .version = version}); }),
                what + leads_out);
    }
    expect_parts(error_of([&] { TensorBoardLogger({.sub_dir = name}); }), {"sub_dir: \"" + name, "leads out of"});
    expect_parts(error_of([&] { TensorBoardLogger({.filename_suffix = name}); }),
                 {"filename_suffix: must be without \"/\", got \"" + name});
  }
  EXPECT_TRUE(folder.names().empty());
}

TEST(LoggerFolder, IsOnesOwnOutsideOfARun) {
  const TemporaryFolder folder;
  CSVLogger csv;
  TensorBoardLogger events;
  csv.start(folder.path(), false);
  events.start(folder.path(), false);
  EXPECT_NE(events.log_dir(), csv.log_dir());
}

}  // namespace
}  // namespace levin::logger_folder_test
