#include "levin/loggers/append_file.h"

#include <gtest/gtest.h>

#include "levin/core/files/files.h"
#include "support/captured_console.h"
#include "support/file_size_limit.h"
#include "support/temporary_folder.h"

namespace levin::append_file_test {
namespace {

using test::CapturedConsole;
using test::FileSizeLimit;
using test::TemporaryFolder;

constexpr const char* kOpening = "begin\n";  // 6 bytes

// "record 0\n" to "record 9\n": 9 bytes each.
std::string records(int first, int end) {
  std::string text;
  for (int k = first; k < end; ++k) text += "record " + std::to_string(k) + "\n";
  return text;
}

void add_ten(AppendFile& file) {
  for (int k = 0; k < 10; ++k) file.add(records(k, k + 1));
}

TEST(AppendFile, AFullDiskTakesTheRecordsThatFitAndLaterTheOthers) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  AppendFile file("Test", 1000);
  file.set_path(folder / "a.txt", kOpening);
  add_ten(file);
  {
    const FileSizeLimit full(6 + 3 * 9 + 5);
    file.write();
  }
  EXPECT_EQ(read_file(folder / "a.txt"), kOpening + records(0, 3));
  EXPECT_EQ(file.size(), 6u + 90u) << "in the file and waiting";
  file.finish();
  EXPECT_EQ(read_file(folder / "a.txt"), kOpening + records(0, 10));
  EXPECT_TRUE(console.has("can be written again. It has the 7 records that waited.")) << console.text();
}

TEST(AppendFile, CountsOnlyTheRecordsThatDoNotFitAsLost) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  AppendFile file("Test", 1000);
  file.set_path(folder / "a.txt", kOpening);
  add_ten(file);
  {
    const FileSizeLimit full(6 + 8 * 9);
    file.finish();
  }
  EXPECT_EQ(read_file(folder / "a.txt"), kOpening + records(0, 8));
  EXPECT_TRUE(console.has("error: Test: 2 records are lost: cannot write " + (folder / "a.txt"))) << console.text();
}

TEST(AppendFile, LeavesNoOpeningWithoutARecord) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  AppendFile file("Test", 1000);
  file.set_path(folder / "a.txt", kOpening);
  add_ten(file);
  {
    const FileSizeLimit full(6 + 8);
    file.write();
  }
  EXPECT_EQ(read_file(folder / "a.txt"), "");
  file.finish();
  EXPECT_EQ(read_file(folder / "a.txt"), kOpening + records(0, 10));
}

}  // namespace
}  // namespace levin::append_file_test
