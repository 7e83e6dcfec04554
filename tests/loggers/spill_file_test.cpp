#include "levin/loggers/spill_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "levin/core/options/error.h"
#include "support/temporary_folder.h"

namespace levin::spill_file_test {
namespace {

using test::TemporaryFolder;

std::string event(int k) {
  return "\"k\":\"tags\",\"i\":[[\"a\",\"" + std::to_string(k) + "\"]]";
}

std::vector<int64_t> numbers(const SpillFile& file) {
  std::vector<int64_t> found;
  for (const auto& one : file.next(1000, SIZE_MAX)) found.push_back(one.number);
  return found;
}

TEST(SpillFile, GivesEventsInTheirOrderUntilTheyAreAcknowledged) {
  const TemporaryFolder folder;
  SpillFile file(folder.path(), 1 << 20);
  for (int k = 0; k < 4; ++k) EXPECT_TRUE(file.push(event(k), 2));
  EXPECT_EQ(file.next(1, SIZE_MAX).at(0).line, "{\"n\":1,\"v\":2," + event(0) + "}\n");
  EXPECT_EQ(numbers(file), (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(file.waiting_values(), 8);
  file.acknowledge(2, 0);
  EXPECT_EQ(numbers(file), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(file.next(1000, 1).size(), 1U);  // at least one, however large
}

TEST(SpillFile, ContinuesAfterAKillWithWhatWasNotAcknowledged) {
  const TemporaryFolder folder;
  {
    SpillFile file(folder.path(), 1 << 20);
    for (int k = 0; k < 4; ++k) file.push(event(k), 1);
    file.acknowledge(3, 1);
  }
  std::ofstream(folder / "outbox.jsonl", std::ios::app) << "{\"n\":5,\"v\":1,\"k\":\"ta";  // cut off in the middle
  SpillFile again(folder.path(), 1 << 20);
  EXPECT_EQ(numbers(again), (std::vector<int64_t>{4}));
  EXPECT_EQ(again.counts().refused, 1);
  again.push(event(9), 1);
  EXPECT_EQ(numbers(again), (std::vector<int64_t>{4, 5}));
  SpillFile third(folder.path(), 1 << 20);
  EXPECT_EQ(numbers(third), (std::vector<int64_t>{4, 5}));
}

TEST(SpillFile, TakesNoNumbersThatNoRunReaches) {
  const TemporaryFolder folder;
  folder.write("outbox.position", R"({"acknowledged": "all", "dropped": -3, "refused": 1e300})");
  folder.write("outbox.jsonl", R"({"n":9223372036854775807,"v":1,"k":"tags"}
{"n":1,"v":9223372036854775807,"k":"tags"}
{"n":1,"v":18446744073709551615,"k":"tags"}
{"n":1.5,"v":1,"k":"tags"}
{"n":1,"v":2,"k":"tags"}
)" + ("{\"n\":2,\"v\":1,\"k\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}\n"));
  SpillFile file(folder.path(), 1 << 20);
  EXPECT_EQ(numbers(file), (std::vector<int64_t>{1}));
  EXPECT_EQ(file.waiting_values(), 2);
  EXPECT_EQ(file.counts().dropped + file.counts().refused, 0);
  EXPECT_TRUE(file.push(event(0), 1));
  EXPECT_EQ(numbers(file), (std::vector<int64_t>{1, 2}));
}

TEST(SpillFile, CountsWhatFindsNoRoomAndTakesMoreWhenThereIsSome) {
  const TemporaryFolder folder;
  SpillFile file(folder.path(), 100);
  EXPECT_TRUE(file.push(event(0), 1));
  EXPECT_TRUE(file.push(event(1), 1));
  EXPECT_FALSE(file.push(event(2), 3));
  EXPECT_EQ(file.counts().dropped, 3);
  file.acknowledge(1, 0);
  EXPECT_TRUE(file.push(event(3), 1));
  EXPECT_EQ(SpillFile(folder.path(), 100).counts().dropped, 3);
}

TEST(SpillFile, CutsOnlyWhatIsAskedForAndNotYetDelivered) {
  const TemporaryFolder folder;
  SpillFile file(folder.path(), 1 << 20);
  for (int k = 0; k < 6; ++k) file.push(event(k), 1);
  file.acknowledge(1, 0);
  const int64_t dropped = file.cut(3, [](const SpilledEvent& one) { return one.number != 5; });
  EXPECT_EQ(dropped, 2);
  EXPECT_EQ(numbers(file), (std::vector<int64_t>{2, 3, 5}));
  file.push(event(9), 1);
  EXPECT_EQ(numbers(file), (std::vector<int64_t>{2, 3, 5, 7}));
  EXPECT_EQ(numbers(SpillFile(folder.path(), 1 << 20)), (std::vector<int64_t>{2, 3, 5, 7}));
}

TEST(SpillFile, GivesTheDiskBackWhatIsDelivered) {
  const TemporaryFolder folder;
  SpillFile file(folder.path(), 1 << 30);
  const std::string long_event = "\"k\":\"text\",\"text\":\"" + std::string(10000, 'x') + "\"";
  for (int k = 0; k < 1000; ++k) {
    file.push(long_event, 1);
    if (k > 3) file.acknowledge(k - 2, 0);
  }
  EXPECT_LT(std::filesystem::file_size(folder / "outbox.jsonl"), 6'000'000U);
  EXPECT_EQ(numbers(file), (std::vector<int64_t>{998, 999, 1000}));
  EXPECT_EQ(numbers(SpillFile(folder.path(), 1 << 30)), (std::vector<int64_t>{998, 999, 1000}));
}

TEST(SpillFile, KeepsInMemoryWhatTheDiskDoesNotTake) {
  const TemporaryFolder folder;
  const std::string path = folder / "outbox.jsonl";
  std::filesystem::create_directory(path);  // in the way
  EXPECT_THROW(SpillFile(folder.path(), 1 << 20), Error);
  std::filesystem::remove(path);
  SpillFile file(folder.path(), 1 << 20);
  std::filesystem::create_directory(path);
  EXPECT_TRUE(file.push(event(0), 1));
  EXPECT_TRUE(file.push(event(1), 1));
  EXPECT_NE(file.problem().find("cannot write " + path + ": Is a directory"), std::string::npos) << file.problem();
  EXPECT_EQ(numbers(file), (std::vector<int64_t>{1, 2}));
  file.acknowledge(1, 0);
  std::filesystem::remove(path);
  EXPECT_TRUE(file.push(event(2), 1));
  EXPECT_EQ(file.problem(), "");
  EXPECT_EQ(numbers(SpillFile(folder.path(), 1 << 20)), (std::vector<int64_t>{2, 3}));
}

}  // namespace
}  // namespace levin::spill_file_test
