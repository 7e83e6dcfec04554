// Ranks that replay a recorded step together or not at all (NCCL's captured collectives), seen from one of them. The
// other rank's answers are scripted here; tests/ranks/record_test.py has real ones.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <optional>

#include "callbacks/quiet_trainer.h"
#include "levin/trainer/step/step_notes.h"
#include "support/repeating_strategy.h"
#include "support/tiny_module.h"

namespace levin::replay_agreement_test {
namespace {

using namespace test;

// What the other rank sends before the end of a window, counted from 0.
struct OtherRank {
  std::vector<int64_t> runs_plain = {};   // its batch does not fit
  std::vector<int64_t> has_lost = {};     // it has no recording any more
  std::optional<int64_t> gives_up = {};   // it can no longer record
  std::optional<int64_t> stops = {};      // it requests the end of the run
  std::vector<ReplayVote> received = {};  // this rank's votes
};

bool holds(const std::vector<int64_t>& windows, int64_t window) {
  return std::find(windows.begin(), windows.end(), window) != windows.end();
}

class OtherAndThis final : public RankCollectives {
 public:
  explicit OtherAndThis(std::shared_ptr<OtherRank> other) : other_(std::move(other)) {}

  [[nodiscard]] int64_t world_size() const override { return 2; }
  [[nodiscard]] at::Tensor reduce_in_step(const at::Tensor& value, ReduceOp op) override {
    EXPECT_EQ(op, ReduceOp::max);
    const auto window = std::ssize(other_->received);
    const double* votes = value.const_data_ptr<double>() + kRankFlags;
    other_->received.push_back({.replays = votes[0] == 0, .is_recorded = votes[1] == 0, .continues = votes[2] == 0});
    at::Tensor reply = at::zeros_like(value);
    auto* numbers = reply.mutable_data_ptr<double>();
    if (window >= other_->stops.value_or(window + 1)) numbers[static_cast<size_t>(RankFlag::stop)] = 1;
    numbers += kRankFlags;
    if (holds(other_->runs_plain, window)) numbers[0] = 1;
    if (holds(other_->has_lost, window)) numbers[1] = 1;
    if (window >= other_->gives_up.value_or(window + 1)) numbers[2] = 1;
    return at::maximum(value, reply);
  }

 private:
  std::shared_ptr<OtherRank> other_;
};

struct TogetherRecorder final : RepeatingStrategy::Recorder {
  using Recorder::Recorder;
  [[nodiscard]] bool replays_together() const override { return true; }
};

class OneOfTwo final : public Strategy {
 public:
  OneOfTwo(const std::shared_ptr<DeviceLog>& log, const std::shared_ptr<OtherRank>& other) {
    use(std::make_unique<OtherAndThis>(other));
    use(std::make_unique<TogetherRecorder>(log));
  }
  [[nodiscard]] std::string name() const override { return "one_of_two"; }
};

struct Seen {
  std::shared_ptr<DeviceLog> device = std::make_shared<DeviceLog>();
  std::shared_ptr<OtherRank> other = {};
  int64_t steps = 0;
};

// One epoch of 12 batches of 4 samples.
Seen train(const OtherRank& script, int64_t accumulate = 1, const std::shared_ptr<Loader>& data = tiny_loader(48)) {
  Seen seen;
  seen.other = std::make_shared<OtherRank>(script);
  TinyModule module;
  TrainerOptions options = quiet(1, {});
  options.num_sanity_val_steps = 0;
  options.accumulate_grad_batches = accumulate;
  options.record_steps = true;
  options.strategy = OneOfTwo(seen.device, seen.other);
  Trainer trainer(options);
  trainer.fit(module, data);
  seen.steps = trainer.global_step();
  return seen;
}

TEST(ReplayAgreement, AllReplayWhereAllCan) {
  const Seen seen = train({});
  EXPECT_EQ(seen.device->records, 1);
  EXPECT_EQ(seen.device->replays, 12 - 3) << "all except the warm-up steps";
  ASSERT_EQ(std::ssize(seen.other->received), 12) << "one message a window";
  EXPECT_FALSE(seen.other->received[2].replays);
  EXPECT_TRUE(seen.other->received[3].replays);
  EXPECT_FALSE(seen.other->received[3].is_recorded);
  EXPECT_TRUE(seen.other->received[4].is_recorded);
}

TEST(ReplayAgreement, NoneReplaysAWindowThatOneCannot) {
  const Seen seen = train({.runs_plain = {5, 8}});
  EXPECT_EQ(seen.device->replays, 12 - 3 - 2);
  EXPECT_EQ(seen.device->records, 1);
  EXPECT_TRUE(seen.other->received[5].replays) << "this rank could have";
  EXPECT_EQ(seen.steps, 12);
}

TEST(ReplayAgreement, AllRecordAnewWhereOneHasNoRecording) {
  const Seen seen = train({.has_lost = {7}});
  EXPECT_EQ(seen.device->records, 2);
  EXPECT_EQ(seen.device->replays, 12 - 3);
}

TEST(ReplayAgreement, OnlyTheLastBatchOfAWindowIsAgreedOn) {
  const Seen seen = train({.runs_plain = {4}}, /*accumulate=*/2);
  EXPECT_EQ(std::ssize(seen.other->received), 6);
  EXPECT_EQ(seen.device->replays, 12 - 6 - 1) << "the window's first batch is replayed";
}

TEST(ReplayAgreement, NoneRecordsAnyMoreOnceOneHasGivenUp) {
  const Seen seen = train({.gives_up = 6});
  EXPECT_EQ(seen.device->replays, 3) << "windows 3 to 5";
  EXPECT_EQ(std::ssize(seen.other->received), 7) << "nothing is asked after that";
  EXPECT_EQ(seen.steps, 12);
}

TEST(ReplayAgreement, ARankThatCannotRecordTellsTheOthersOnce) {
  Batch all;
  const auto whole = tiny_loader(48, 48);
  whole->start(0, 0);
  whole->next(all);
  const auto lazily_negated = std::make_shared<TensorLoader>(std::vector<at::Tensor>{at::_neg_view(all[0]), all[1]}, 4);
  const Seen seen = train({}, 1, lazily_negated);
  ASSERT_EQ(std::ssize(seen.other->received), 1);
  EXPECT_FALSE(seen.other->received[0].continues);
  EXPECT_EQ(seen.device->records, 0);
  EXPECT_EQ(seen.steps, 12);
}

TEST(ReplayAgreement, ARequestToStopArrivesWithIt) {
  EXPECT_EQ(train({.stops = 7}).steps, 8) << "after that window";
}

TEST(ReplayAgreement, AutoRecordsNothing) {
  TinyModule module;
  TrainerOptions options = quiet(1, {});
  const auto log = std::make_shared<DeviceLog>();
  const auto other = std::make_shared<OtherRank>();
  options.strategy = OneOfTwo(log, other);
  options.record_steps = "auto";
  Trainer(options).fit(module, tiny_loader(48));
  EXPECT_EQ(log->records, 0);
  EXPECT_TRUE(other->received.empty());
}

}  // namespace
}  // namespace levin::replay_agreement_test
