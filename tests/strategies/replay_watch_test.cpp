// Replays that end, and a replay that does not.
#include "levin/strategies/process/replay_watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "support/device/streams.h"
#include "support/device/test_device.h"

namespace levin::replay_watch_test {
namespace {

using namespace std::chrono_literals;

constexpr Seconds kTimeout{0.2};
constexpr Seconds kLongTimeout{1};  // of replays that must end within it, on a busy machine too

at::Device device() {
  return {test::kTestDeviceType, 0};
}

// Work that ends when somebody waits for it.
void launch(ReplayWatch& watch) {
  test::run_late(device(), [] {});
  watch.launched();
}

TEST(ReplayWatch, EndsTheProcessOfAReplayThatDoesNotEnd) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ReplayWatch watch(device(), "rank 0 of 2", kTimeout);
        launch(watch);
        ::alarm(60);
        for (;;) ::pause();
      },
      ::testing::ExitedWithCode(1),
      "error: rank 0 of 2: a recorded step did not end within 200 ms: it waits for the others' gradients. Another rank "
      "ended or hangs; see its output.");
}

TEST(ReplayWatch, WatchesTheOldestOfThoseThatHaveNotEnded) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ReplayWatch watch(device(), "rank 0 of 2", kTimeout);
        ::alarm(60);
        for (;;) {  // a host that runs ahead
          launch(watch);
          std::this_thread::sleep_for(50ms);
        }
      },
      ::testing::ExitedWithCode(1), "did not end within");
}

TEST(ReplayWatch, LeavesReplaysThatEnd) {
  ReplayWatch watch(device(), "rank 0 of 2", kLongTimeout);
  for (int k = 0; k < 8; ++k) {
    launch(watch);
    std::this_thread::sleep_for(200ms);
    test::finish_stream(device());
  }
}

TEST(ReplayWatch, HasNothingToWatchBetweenReplays) {
  ReplayWatch watch(device(), "rank 0 of 2", kTimeout);
  launch(watch);
  test::finish_stream(device());
  std::this_thread::sleep_for(600ms);
}

}  // namespace
}  // namespace levin::replay_watch_test
