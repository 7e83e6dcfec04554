#include "levin/inference/default_dtype_turn.h"

#include <c10/core/DefaultDtype.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

#include "levin/core/options/error.h"
#include "support/error_text.h"

namespace levin::default_dtype_turn_test {
namespace {

using test::error_of;
using test::holds;

at::ScalarType default_now() {
  return c10::typeMetaToScalarType(c10::get_default_dtype());
}

TEST(DefaultDtypeTurn, SetsTheTypeAndRestoresIt) {
  ASSERT_EQ(default_now(), at::kFloat);
  {
    const DefaultDtypeTurn outer(at::kDouble);
    EXPECT_EQ(default_now(), at::kDouble);
    {
      const DefaultDtypeTurn inner(at::kDouble);
      EXPECT_EQ(default_now(), at::kDouble);
    }
    EXPECT_EQ(default_now(), at::kDouble);
  }
  EXPECT_EQ(default_now(), at::kFloat);
}

TEST(DefaultDtypeTurn, ADifferentTypeInsideAnErrorIsReported) {
  const DefaultDtypeTurn outer(at::kDouble);
  for (const auto& wish : {std::optional<at::ScalarType>(), std::optional(at::kHalf)}) {
    EXPECT_TRUE(holds(error_of<Error>([&] { const DefaultDtypeTurn inner(wish); }), {"Double", "one after the other"}));
  }
}

TEST(DefaultDtypeTurn, ThreadsOfOneTypeRunTogether) {
  std::barrier together(4);  // none passes before all have their turn
  std::vector<std::jthread> threads;
  for (int k = 0; k < 4; ++k) {
    threads.emplace_back([&] {
      const DefaultDtypeTurn turn(at::kBFloat16);
      together.arrive_and_wait();
      EXPECT_EQ(default_now(), at::kBFloat16);
    });
  }
  threads.clear();
  EXPECT_EQ(default_now(), at::kFloat);
}

TEST(DefaultDtypeTurn, EachThreadSeesItsOwnTypeAndNoneStarves) {
  const std::vector<std::optional<at::ScalarType>> wishes{std::nullopt, at::kDouble, at::kBFloat16};
  std::atomic<int> wrong = 0;
  std::atomic<bool> is_over = false;
  std::vector<std::jthread> crowd;  // never leaves the default's turn empty for long
  for (int k = 0; k < 3; ++k) {
    crowd.emplace_back([&] {
      while (!is_over) {
        const DefaultDtypeTurn turn(std::nullopt);
        if (default_now() != at::kFloat) ++wrong;
        std::this_thread::yield();
      }
    });
  }
  {
    std::vector<std::jthread> threads;
    for (int k = 0; k < 6; ++k) {
      threads.emplace_back([&, wish = wishes[static_cast<size_t>(k) % 3]] {
        for (int n = 0; n < 200; ++n) {
          const DefaultDtypeTurn turn(wish);
          if (default_now() != wish.value_or(at::kFloat)) ++wrong;
          std::this_thread::yield();
          if (default_now() != wish.value_or(at::kFloat)) ++wrong;
        }
      });
    }
  }
  is_over = true;
  crowd.clear();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(default_now(), at::kFloat);
}

}  // namespace
}  // namespace levin::default_dtype_turn_test
