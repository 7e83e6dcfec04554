// Messages between ranks within a recorded step: repeated by replays, waited for where they are used, not sent where
// the step itself is compared with a replay. Real groups of forked ranks; sums are known in closed form.
#include "levin/strategies/tape/rank_messages.h"

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "forked_ranks.h"
#include "levin/strategies/tape/call_recorder.h"
#include "levin/strategies/tape/step_tape.h"

namespace levin::rank_messages_test {
namespace {

using test::on_ranks;
using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

c10::intrusive_ptr<c10d::Work> all_reduce(const Group& group, const at::Tensor& tensor) {
  std::vector<at::Tensor> tensors = {tensor};
  return group->allreduce(tensors);
}

// Two sums over ranks, the first under way while others are computed; (3) from `input` (3).
struct Step {
  Group group;
  at::Tensor input = at::zeros({3}), two = at::scalar_tensor(2.0);
  at::Tensor first = at::zeros({3}), second = at::zeros({3}), result = {};

  void operator()() {
    at::mul_out(first, input, two);
    const auto sums = all_reduce(group, first);
    at::mul_out(second, input, input);
    const auto squares = all_reduce(group, second);
    const at::Tensor beside = input + 1;
    sums->wait();
    const at::Tensor doubled = first * beside;
    squares->wait();
    result = doubled + second;
  }
};

// Returns the result for ranks whose inputs are rank + k at all positions.
float expected(int64_t rank, int64_t ranks, int64_t k) {
  int64_t sum = 0, squares = 0;
  for (int64_t other = 0; other < ranks; ++other) {
    sum += 2 * (other + k);
    squares += (other + k) * (other + k);
  }
  return static_cast<float>(sum * (rank + k + 1) + squares);
}

std::string check(const Step& step, int64_t ranks, int64_t k) {
  const float found = step.result[0].item<float>(), wanted = expected(step.group->getRank(), ranks, k);
  return found == wanted ? "" : std::to_string(found) + " instead of " + std::to_string(wanted) + "; ";
}

void expect_nothing_wrong(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) EXPECT_EQ(text, "");
}

TEST(RankMessages, AreSentAgainByEachReplay) {
  for (const std::string backend : {"gloo", "shm"}) {
    expect_nothing_wrong(on_ranks(3, [backend](ProcessRanks& ranks) -> std::string {
      Step step{ranks.group("test", backend, at::kCPU)};
      TapeRecorder recorder;
      std::unique_ptr<Recording> tape;
      std::string wrong;
      for (int64_t k = 0; k < 6; ++k) {
        step.input.fill_(static_cast<double>(step.group->getRank() + k));
        if (tape != nullptr) {
          tape->replay();
        } else {
          tape = recorder.record([&] { step(); });
          if (tape == nullptr) return recorder.refusal();
        }
        wrong += check(step, 3, k);
      }
      return wrong;
    }));
  }
}

TEST(RankMessages, AreTheSameForOthersWhetherTheStepRunsOrItsReplay) {
  for (const std::string backend : {"gloo", "shm"}) {
    expect_nothing_wrong(on_ranks(2, [backend](ProcessRanks& ranks) -> std::string {
      Step step{ranks.group("test", backend, at::kCPU)};
      TapeRecorder recorder;
      const std::unique_ptr<Recording> tape = recorder.record([&] { step(); });
      std::string wrong;
      for (int64_t k = 0; k < 8; ++k) {
        step.input.fill_(static_cast<double>(step.group->getRank() + k));
        const bool replays = (k + step.group->getRank()) % 2 == 0;
        if (replays) {
          tape->replay();
        } else {  // and what it has received is received again, while the other rank is in its next step
          const at::Tensor replayed = step.result;
          wrong += tape->run_beside([&] { step(); });
          const at::Tensor own = std::exchange(step.result, replayed);
          step.result.zero_();
          tape->replay_beside();
          if (!at::equal(own, step.result)) wrong += "the replay differs from the step; ";
        }
        wrong += check(step, 2, k);
      }
      return wrong;
    }));
  }
}

TEST(RankMessages, AreWaitedForBeforeTheFirstUseOfTheirMemory) {
  expect_nothing_wrong(on_ranks(1, [](ProcessRanks& ranks) -> std::string {
    Step step{ranks.group("test", "gloo", at::kCPU)};
    at::Tensor unused = at::zeros({2});
    CallRecorder recorder(CallRecorder::Depth::forms);
    step();
    all_reduce(step.group, unused)->wait();
    const at::Tensor last = step.input + 2;
    const RecordedCalls recorded = recorder.take();
    std::string order;
    const auto waits = plan_waits(recorded);
    for (size_t k = 0; k < waits.size(); ++k) {
      for (const size_t message : waits[k]) order += "wait " + std::to_string(message) + ", ";
      if (k < recorded.calls.size())
        order += recorded.calls[k].name().substr(recorded.calls[k].name().find(':') + 2) + ", ";
    }
    const std::string wanted =
        "mul, allreduce_, mul, allreduce_, add, wait 1, mul, wait 3, add, allreduce_, wait 7, add, ";
    return order.find(wanted) != std::string::npos ? "" : order;
  }));
}

TEST(RankMessages, OfOtherKindsAreRefusedByTheirNames) {
  const auto texts = on_ranks(1, [](ProcessRanks& ranks) -> std::string {
    const Group group = ranks.group("test", "gloo", at::kCPU);
    TapeRecorder recorder;
    const auto tape = recorder.record([&] {
      std::vector<at::Tensor> own = {at::zeros({2})};
      std::vector<std::vector<at::Tensor>> all = {{at::zeros({2})}};
      group->allgather(all, own)->wait();
    });
    return recorder.refusal();
  });
  EXPECT_EQ(texts[0], "c10d::allgather_ sends tensors to other ranks in a way that a recording does not repeat");
}

}  // namespace
}  // namespace levin::rank_messages_test
