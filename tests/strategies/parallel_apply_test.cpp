// Parallel tasks: what they inherit from the calling thread, what they draw, and how they fail.
#include "levin/strategies/device/parallel_apply.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <latch>
#include <mutex>
#include <set>
#include <thread>

#include "levin/core/options/error.h"
#include "levin/precision/autocast.h"
#include "levin/strategies/device/random_scope.h"
#include "support/error_text.h"

namespace levin::parallel_apply_test {
namespace {

using test::error_of;

TEST(ParallelApply, GivesEachSlotAThreadAndTellsItWhichSlotItIs) {
  ParallelApply apply(cpu_slots(3));
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::vector<std::string> slots(3);
  apply([&](size_t k) {
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
    slots[k] = current_slot()->text();
  });
  EXPECT_EQ(threads.size(), 3U);
  EXPECT_TRUE(threads.contains(std::this_thread::get_id()));
  EXPECT_EQ(slots, (std::vector<std::string>{"cpu:0", "cpu:1", "cpu:2"}));
  EXPECT_EQ(current_slot(), nullptr);
}

TEST(ParallelApply, RunsItsTasksAtTheSameTime) {
  ParallelApply apply(cpu_slots(2));
  std::atomic<int> there = 0;
  apply([&](size_t) {
    ++there;
    while (there < 2) std::this_thread::yield();  // each waits for the other: in turn it would never end
  });
  EXPECT_EQ(there, 2);
}

TEST(ParallelApply, SharesOutTheThreadsOfOperators) {
  const int before = at::get_num_threads();
  at::set_num_threads(6);
  ParallelApply apply(cpu_slots(3));
  std::vector<int> seen(3);
  auto look = [&](size_t k) { seen[k] = at::get_num_threads(); };
  apply(look);
  EXPECT_EQ(seen, (std::vector<int>{2, 2, 2}));
  apply(2, look);
  EXPECT_EQ(seen, (std::vector<int>{3, 3, 2}));
  EXPECT_EQ(at::get_num_threads(), 6);
  at::set_num_threads(2);
  apply(look);
  EXPECT_EQ(seen, (std::vector<int>{1, 1, 1}));
  at::set_num_threads(before);
}

TEST(ParallelApply, CarriesGradModeInferenceModeAndAutocastIntoItsThreads) {
  ParallelApply apply(cpu_slots(2));
  const at::Tensor x = torch::ones({2, 2}, at::requires_grad());
  std::vector<bool> graph(2), inference(2);
  std::vector<at::ScalarType> types(2);
  auto look = [&](size_t k) {
    const at::Tensor y = x.matmul(x);
    graph[k] = y.requires_grad();
    inference[k] = y.is_inference();
    types[k] = y.scalar_type();
  };
  apply(look);
  EXPECT_TRUE(graph[0] && graph[1]);
  EXPECT_EQ(types[1], at::kFloat);
  {
    const torch::NoGradGuard no_grad;
    apply(look);
    EXPECT_FALSE(graph[0] || graph[1]);
  }
  {
    const c10::InferenceMode inference_mode;
    apply(look);
    EXPECT_TRUE(inference[0] && inference[1]);
  }
  {
    const Autocast autocast(at::kCPU, at::kBFloat16);
    apply(look);
    EXPECT_EQ(types[0], at::kBFloat16);
    EXPECT_EQ(types[1], at::kBFloat16);
  }
  apply(look);  // the same threads again: nothing has stayed
  EXPECT_TRUE(graph[1]);
  EXPECT_FALSE(inference[1]);
  EXPECT_EQ(types[1], at::kFloat);
}

// What each slot draws when slot `late` begins once the others have ended.
std::vector<at::Tensor> drawn(size_t late) {
  torch::manual_seed(5);
  ParallelApply apply(cpu_slots(3));
  std::vector<at::Tensor> numbers(3);
  for (int round = 0; round < 2; ++round) {
    std::latch others(2);
    apply([&](size_t k) {
      if (k == late) others.wait();
      at::Tensor all = torch::dropout(torch::ones({50}), 0.5, true);
      for (int n = 0; n < 20; ++n) all = torch::cat({all, torch::randn({7}), torch::rand({3})});
      numbers[k] = numbers[k].defined() ? torch::cat({numbers[k], all}) : all;
      if (k != late) others.count_down();
    });
  }
  numbers.push_back(torch::rand({4}));
  return numbers;
}

TEST(ParallelApply, DrawsTheSameRandomNumbersWhicheverThreadIsFaster) {
  const auto first = drawn(0), second = drawn(2);
  for (size_t k = 0; k < first.size(); ++k) EXPECT_TRUE(first[k].equal(second[k])) << k;
  EXPECT_FALSE(first[0].equal(first[1]));
  EXPECT_FALSE(first[0].slice(0, 0, 250).equal(first[0].slice(0, 250, 500)));  // each round its own
}

TEST(RandomScope, LeavesTheNumbersOfTheProcessAlone) {
  torch::manual_seed(3);
  const at::Tensor expected = torch::rand({6});
  torch::manual_seed(3);
  at::Tensor inside, again;
  {
    const RandomScope random(11);
    inside = torch::rand({6});
    const RandomScope nested(11);
    again = torch::rand({6});
  }
  EXPECT_TRUE(torch::rand({6}).equal(expected));
  EXPECT_TRUE(inside.equal(again));
  EXPECT_FALSE(inside.equal(expected));
  torch::manual_seed(11);
  EXPECT_TRUE(inside.equal(torch::rand({6})));  // a generator seeded so, as LibTorch has it
}

TEST(RandomScope, SeedsComeFromTheProcesssNumbers) {
  torch::manual_seed(3);
  const uint64_t one = draw_seed(), two = draw_seed();
  torch::manual_seed(3);
  EXPECT_EQ(draw_seed(), one);
  EXPECT_NE(one, two);
}

TEST(ParallelApply, NamesTheSlotOfAnExceptionAfterAllTasksHaveEnded) {
  ParallelApply apply(cpu_slots(3));
  std::atomic<int> ended = 0;
  const std::string text = error_of([&] {
    apply([&](size_t k) {
      if (k == 1) throw std::runtime_error("a fault");
      if (k == 2) (void)torch::ones({2}).matmul(torch::ones({3}));
      ++ended;
    });
  });
  EXPECT_EQ(text, "replica 1 of 3 on cpu:1: a fault");
  EXPECT_EQ(ended, 1);
  const std::string torchs =
      error_of([&] { apply(2, [&](size_t) { (void)torch::ones({2}).matmul(torch::ones({3})); }); });
  EXPECT_NE(torchs.find("replica 0 of 2 on cpu:0: "), std::string::npos) << torchs;
  EXPECT_NE(torchs.find("size"), std::string::npos) << torchs;
  apply([](size_t) {});  // and it still works
}

TEST(ParallelApply, KeepsAMistakeInOptionsAndNamesItsSlot) {
  ParallelApply apply(cpu_slots(2));
  EXPECT_EQ(error_of<ConfigError>([&] { apply([](size_t) { throw ConfigError("a mistake"); }); }),
            "replica 0 of 2 on cpu:0: a mistake");
}

TEST(ParallelApply, RethrowsARequestToEndUnchanged) {
  ParallelApply apply(cpu_slots(2));
  EXPECT_THROW(apply([](size_t k) {
                 if (k == 1) throw Interrupted(2);
               }),
               Interrupted);
}

TEST(ParallelApply, NeedsASlot) {
  EXPECT_NE(error_of([] { const ParallelApply apply({}); }).find("Give at least one device"), std::string::npos);
}

}  // namespace
}  // namespace levin::parallel_apply_test
