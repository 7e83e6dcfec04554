#include "levin/trainer/step/left_memory.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "support/wait_until.h"

namespace levin::left_memory_test {
namespace {

TEST(StepMemory, NamesWhoKeepsATensor) {
  const StepMemory memory(/*holds=*/false);
  const at::Tensor kept = at::ones({16});
  EXPECT_TRUE(memory.problem({}, {}, "training_step").starts_with("training_step keeps a tensor of 64 B of its batch"));
  EXPECT_EQ(memory.problem({}, {kept}, "training_step"), "");
}

TEST(StepMemory, GivesAnotherThreadTimeToReleaseATensor) {
  const StepMemory memory(/*holds=*/false);
  std::jthread backend([tensor = at::ones({16}), waiting = ::gettid()]() mutable {
    EXPECT_TRUE(test::wait_until([&] { return test::is_blocked(waiting); }));
    tensor.reset();
  });
  EXPECT_EQ(memory.problem({}, {}, "training_step"), "");
}

}  // namespace
}  // namespace levin::left_memory_test
