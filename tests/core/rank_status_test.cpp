#include "levin/core/process/rank_status.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace levin::rank_status_test {
namespace {

// In a process of its own, as the status is the process's: 0 if it was written to the launcher's page, 1 if to the
// process's own.
[[noreturn]] void write_status(const char* local_rank) {
  const RankPages pages(2);
  ::setenv(RankPages::kVariable, std::to_string(pages.descriptor()).c_str(), 1);
  ::setenv("LOCAL_RANK", local_rank, 1);
  RankStatus::instance().set_position("train", 3, 5, 7);
  std::_Exit(pages[1].text() == "in train, epoch 3, batch 5, global step 7" ? 0 : 1);
}

TEST(RankStatus, WritesToTheLaunchersPageOfThisRankAlone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(write_status("1"), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(write_status("2"), ::testing::ExitedWithCode(1), "") << "there are two";
  EXPECT_EXIT(write_status("-1"), ::testing::ExitedWithCode(1), "");
  EXPECT_EXIT(write_status("2147483647"), ::testing::ExitedWithCode(1), "");
}

TEST(RankStatus, SaysBeforeTrainingUntilItHasAPosition) {
  EXPECT_EQ(RankPages(1)[0].text(), "before training");
}

// A stray write of a rank's program must not end the launcher, which reports where the rank was.
TEST(RankStatus, AnyBytesInAPageAreReadWithinIt) {
  const RankPages pages(2);
  void* const memory = ::mmap(nullptr, 2 * sizeof(RankPage), PROT_READ | PROT_WRITE, MAP_SHARED, pages.descriptor(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 'x', 2 * sizeof(RankPage));
  const RankPage& page = pages[0];
  EXPECT_EQ(page.error_text(), std::string(page.error.size(), 'x'));
  EXPECT_EQ(page.waiting_text(), std::string(page.waiting.size(), 'x'));
  EXPECT_TRUE(page.text().starts_with("in " + std::string(page.phase.size(), 'x') + ", epoch ")) << page.text();
  static_cast<RankPage*>(memory)->saves = 0;
  static_cast<RankPage*>(memory)->saved_at = INT64_MAX;
  const int64_t saved_at = page.last_saved();
  EXPECT_LE(saved_at, monotonic_now());
  static_cast<RankPage*>(memory)->saved_at = INT64_MIN;
  EXPECT_EQ(page.last_saved(), 0);
  ::munmap(memory, 2 * sizeof(RankPage));
}

TEST(RankStatus, TellsWhenItSavedLast) {
  RankStatus& status = RankStatus::instance();  // 0, or the time of another test's save
  const int64_t before = monotonic_now();
  EXPECT_LT(status.last_saved(), before);
  {
    const SaveInProgress one;
    { const SaveInProgress other; }
    const int64_t now = monotonic_now();
    EXPECT_GE(status.last_saved(), now) << "one has ended, the other has not";
  }
  const int64_t ended = status.last_saved();
  EXPECT_GE(ended, before);
  EXPECT_LE(ended, monotonic_now());
  EXPECT_EQ(status.last_saved(), ended);
}

}  // namespace
}  // namespace levin::rank_status_test
