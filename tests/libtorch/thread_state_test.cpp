#include "levin/libtorch/thread_state.h"

#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <thread>

namespace levin::thread_state_test {
namespace {

bool backward_has_threads() {
  return c10::AutogradState::get_tls_state().get_multithreading_enabled();
}

TEST(ThreadLocalState, GivesAThreadTheModesOfAnotherUntilItsScopeEnds) {
  const c10::AutoGradMode off(false);
  const ThreadLocalState state;
  bool inside = true, after = false;
  std::thread([&] {
    {
      const ThreadLocalStateGuard guard(state);
      inside = c10::GradMode::is_enabled();
    }
    after = c10::GradMode::is_enabled();
  }).join();
  EXPECT_FALSE(inside);
  EXPECT_TRUE(after);
}

TEST(AutogradThreads, AreOffInsideAScopeThatAsksForItAndItsInnerScopes) {
  ASSERT_TRUE(backward_has_threads());
  {
    const AutogradThreads off(false);
    EXPECT_FALSE(backward_has_threads());
    const AutogradThreads on(true);
    EXPECT_FALSE(backward_has_threads());
  }
  EXPECT_TRUE(backward_has_threads());
}

}  // namespace
}  // namespace levin::thread_state_test
