#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "levin/core/files/files.h"
#include "levin/loggers/csv_logger.h"
#include "support/captured_console.h"
#include "support/file_size_limit.h"
#include "support/temporary_folder.h"

namespace levin::csv_full_disk_test {
namespace {

using test::CapturedConsole;
using test::FileSizeLimit;
using test::TemporaryFolder;

CSVLoggerOptions written_at_the_end(const TemporaryFolder& folder) {
  return {.save_dir = folder.path(), .name = "logs", .version = "", .flush_logs_every_n_steps = 1000};
}

// Rows "0.125,STEP" of steps from `first` up to `end`.
void log_steps(CSVLogger& logger, int64_t first, int64_t end) {
  for (int64_t step = first; step < end; ++step) logger.log_metrics({{"b", 0.125}}, step);
}

std::string rows_of_steps(int64_t first, int64_t end) {
  std::string text;
  for (int64_t step = first; step < end; ++step) text += "0.125," + std::to_string(step) + "\n";
  return text;
}

TEST(CSVFullDisk, TakesTheRowsThatFit) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  CSVLogger logger(written_at_the_end(folder));
  logger.start("", false);
  log_steps(logger, 0, 1);
  logger.save();
  log_steps(logger, 1, 101);
  {
    // 9 rows of 8 bytes, 5 of 9 bytes, and a part of the next one.
    const FileSizeLimit full(std::filesystem::file_size(logger.metrics_path()) + 9 * 8 + 5 * 9 + 4);
    logger.finalize("success");
  }
  EXPECT_EQ(read_file(logger.metrics_path()), "b,step\n" + rows_of_steps(0, 15));
  EXPECT_TRUE(console.has("error: CSVLogger: 86 rows of metrics are lost: ")) << console.text();
}

TEST(CSVFullDisk, TakesTheRowsOfANewFileThatFit) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  CSVLogger logger(written_at_the_end(folder));
  logger.start("", false);
  log_steps(logger, 0, 101);
  {
    const FileSizeLimit full(7 + 10 * 8 + 12 * 9 + 3);
    logger.finalize("success");
  }
  EXPECT_EQ(read_file(logger.metrics_path()), "b,step\n" + rows_of_steps(0, 22));
  EXPECT_TRUE(console.has("error: CSVLogger: 79 rows of metrics are lost: ")) << console.text();
}

TEST(CSVFullDisk, TakesTheRowsBeforeANewColumnForWhichItHasNoRoom) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  CSVLogger logger(written_at_the_end(folder));
  logger.start("", false);
  log_steps(logger, 0, 200);
  logger.save();
  log_steps(logger, 200, 210);
  for (int64_t step = 210; step < 215; ++step) logger.log_metrics({{"b", 0.125}, {"c", 1.0}}, step);
  {
    // Room for ten rows, but not for a comma in each of the 200 rows that are there.
    const FileSizeLimit full(std::filesystem::file_size(logger.metrics_path()) + 10 * 10);
    logger.save();
    EXPECT_EQ(read_file(logger.metrics_path()), "b,step\n" + rows_of_steps(0, 210));
  }
  logger.finalize("success");
  const std::string text = read_file(logger.metrics_path());
  EXPECT_TRUE(text.starts_with("b,c,step\n0.125,,0\n") &&
              text.ends_with("0.125,,209\n0.125,1.0,210\n0.125,1.0,211\n"
                             "0.125,1.0,212\n0.125,1.0,213\n0.125,1.0,214\n"))
      << text;
  EXPECT_FALSE(console.has("lost")) << console.text();
}

}  // namespace
}  // namespace levin::csv_full_disk_test
