// val_check_interval as a period: after which training batches a fit validates.
#include <gtest/gtest.h>

#include <thread>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/callbacks/model_checkpoint.h"
#include "levin/trainer/plan/resolve_plan.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::validation_period_test {
namespace {

using namespace test;
using Batches = std::vector<int64_t>;

TrainerOptions checking_every(const Period& period, int64_t max_epochs) {
  TrainerOptions options = quiet(max_epochs, {});
  options.val_check_interval = period;
  options.num_sanity_val_steps = 0;
  return options;
}

/// The training batches, counted over all epochs of six, that were followed by a validation.
Batches validated_after(TrainerOptions options, const std::string& ckpt_path = "") {
  Batches seen;
  options.callbacks.push_back(
      LambdaCallback({.on_validation_end = [&](Trainer& t, LightningModule&) { seen.push_back(t.seen_batches()); }}));
  TinyModule module;
  Trainer(options).fit(module, tiny_loader(24), tiny_loader(8), ckpt_path);
  return seen;
}

TEST(ValidationPeriod, OfBatchesCountsAcrossEpochs) {
  EXPECT_EQ(validated_after(checking_every("4ba", 3)), (Batches{4, 8, 12, 16}));
  EXPECT_EQ(validated_after(checking_every("9ba", 3)), (Batches{9, 18}));
}

TEST(ValidationPeriod, OfEpochsIsAfterTheirEnds) {
  EXPECT_EQ(validated_after(checking_every("2ep", 5)), (Batches{12, 24}));
  EXPECT_EQ(validated_after(checking_every("1ep", 2)), (Batches{6, 12}));
  EXPECT_EQ(validated_after(checking_every("0.5ep", 2)), (Batches{3, 6, 9, 12}));
}

TEST(ValidationPeriod, OfTheRunFollowsEveryLimit) {
  EXPECT_EQ(validated_after(checking_every("0.25dur", 4)), (Batches{6, 12, 18, 24}));
  TrainerOptions steps = checking_every("0.5dur", -1);
  steps.max_steps = 10;
  EXPECT_EQ(validated_after(steps), (Batches{5, 10}));
  steps.max_epochs = 1;  // nearer
  EXPECT_EQ(validated_after(steps), (Batches{3, 6}));
  TrainerOptions accumulating = checking_every("0.5dur", -1);
  accumulating.max_steps = 4;
  accumulating.accumulate_grad_batches = 2;
  EXPECT_EQ(validated_after(accumulating), (Batches{4, 8}));
}

TEST(ValidationPeriod, OfTimeIsOnceThatHasPassed) {
  EXPECT_EQ(validated_after(checking_every(Seconds(1e-9), 1)), (Batches{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(validated_after(checking_every("1h", 2)), Batches{});
  TrainerOptions share = checking_every("0.5dur", -1);  // of ten hours
  share.max_time = std::chrono::hours(10);
  share.limit_train_batches = int64_t{3};
  share.max_epochs = -1;
  EXPECT_EQ(std::get<Period>(resolve_plan(share).val_check_interval), Period("5h"));
}

// Four batches; how many there are is not known.
class Stream final : public Loader {
 public:
  void start(int64_t, int64_t first_batch) override { next_ = first_batch; }
  bool next(Batch& batch) override {
    if (next_ >= 4) return false;
    ++next_;
    batch = Batch{torch::ones({4, 4}), torch::ones({4, 1})};
    return true;
  }
  [[nodiscard]] std::optional<int64_t> num_batches() const override { return std::nullopt; }

 private:
  int64_t next_ = 0;
};

Batches validated_in_stream(const CheckInterval& interval, std::optional<int64_t> limit) {
  Batches seen;
  TrainerOptions options = quiet(2, {});
  options.val_check_interval = interval;
  options.num_sanity_val_steps = 0;
  if (limit) options.limit_train_batches = *limit;
  options.callbacks.push_back(
      LambdaCallback({.on_validation_end = [&](Trainer& t, LightningModule&) { seen.push_back(t.seen_batches()); }}));
  TinyModule module;
  Trainer(options).fit(module, Loaders(std::make_shared<Stream>()), tiny_loader(8));
  return seen;
}

TEST(ValidationPeriod, FollowsAnEpochThatEndsBeforeItsLimit) {
  const CapturedConsole console;
  EXPECT_EQ(validated_in_stream(1.0, 50), (Batches{4, 8}));
  EXPECT_EQ(validated_in_stream(1.0, 3), (Batches{3, 6}));
  EXPECT_EQ(validated_in_stream(int64_t{3}, 50), (Batches{3, 7}));
  EXPECT_EQ(console.text(), "");
}

TEST(ValidationPeriod, WarnsOnceOfAStreamThatIsTooShortForIt) {
  const CapturedConsole console;
  EXPECT_EQ(validated_in_stream(int64_t{5}, std::nullopt), Batches{});
  ASSERT_EQ(console.lines().size(), 1U) << console.text();
  EXPECT_TRUE(holds(console.text(), {"TrainerOptions.val_check_interval: epoch 0 ended after 4 training batches",
                                     "every 5, so none ran", "check_val_every_n_epoch: null"}));
}

// A busy machine is slower: when a validation is due follows from the times that the run itself took.
TEST(ValidationPeriod, BeginsAgainAfterEachValidation) {
  using Clock = std::chrono::steady_clock;
  constexpr auto period = std::chrono::milliseconds(100);
  const auto take_time = [](int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); };
  TrainerOptions options = checking_every("100ms", 1);
  int64_t validations = 0;
  Clock::time_point before, after, trained;  // a period begins between the first two
  bool has_begun = false;                    // and a batch was trained in it
  options.callbacks.push_back(
      LambdaCallback({.on_train_batch_start =
                          [&](Trainer&, LightningModule&, const Batch&, int64_t) {
                            EXPECT_TRUE(!has_begun || trained - after < period) << "a validation was due";
                            if (!std::exchange(has_begun, true)) after = Clock::now();
                            take_time(40);
                          },
                      .on_train_batch_end = [&](Trainer&, LightningModule&, const at::Tensor&, const Batch&,
                                                int64_t) { trained = Clock::now(); },
                      .on_validation_start =
                          [&](Trainer&, LightningModule&) {
                            EXPECT_GE(Clock::now() - before, period) << "a validation was not due";
                            has_begun = false;
                            ++validations;
                            take_time(150);  // does not count
                            before = Clock::now();
                          }}));
  TinyModule module;
  before = Clock::now();
  Trainer(options).fit(module, tiny_loader(40), tiny_loader(8));
  EXPECT_GE(validations, 3);  // of ten batches
}

TEST(ValidationPeriod, IsTheSameAfterAResume) {
  for (const char* period : {"4ba", "2ep", "0.25dur", "0.5ep"}) {
    const TemporaryFolder folder;
    const std::string path = folder.path() + "/middle.ckpt";
    TrainerOptions options = checking_every(period, 4);
    const Batches whole = validated_after(options);
    options.callbacks.push_back(
        LambdaCallback({.on_train_batch_start = [&](Trainer& t, LightningModule&, const Batch&, int64_t) {
          if (t.seen_batches() == 12) t.save_checkpoint(path);
        }}));
    (void)validated_after(options);
    Batches rest;
    for (const int64_t batch : whole) {
      if (batch > 12) rest.push_back(batch);
    }
    EXPECT_EQ(validated_after(checking_every(period, 4), path), rest) << period;
  }
}

TEST(ValidationPeriod, RefusesAShareOfARunWithoutAnEnd) {
  const std::string error = error_of([] { (void)resolve_plan(checking_every("0.1dur", -1)); });
  EXPECT_TRUE(has(error, "TrainerOptions.val_check_interval: 0.1dur is a share of a run without an end")) << error;
  EXPECT_TRUE(has(error, "max_epochs, max_steps or max_time")) << error;
}

TEST(ValidationPeriod, RefusesEpochsInAdditionToAPeriod) {
  TrainerOptions options = checking_every("500ba", 3);
  options.check_val_every_n_epoch = 2;
  const std::string error = error_of([&] { (void)resolve_plan(options); });
  EXPECT_TRUE(has(error, "500ba and check_val_every_n_epoch: 2 exclude each other")) << error;
}

// ---- ModelCheckpoint ------------------------------------------------------------------------------------------------

using Names = std::vector<std::string>;

Names saved_every(const Period& period, int64_t max_epochs) {
  const TemporaryFolder folder;
  TinyModule module;
  Trainer(quiet(max_epochs,
                {ModelCheckpoint({.dirpath = folder.path(), .filename = "{step}", .save_top_k = -1, .every = period})}))
      .fit(module, tiny_loader(24));
  return folder.names();
}

TEST(SavePeriod, CountsBatchesEpochsTimeAndShares) {
  EXPECT_EQ(saved_every("5ba", 2), (Names{"step=10.ckpt", "step=5.ckpt"}));
  EXPECT_EQ(saved_every("2ep", 4), (Names{"step=12.ckpt", "step=24.ckpt"}));
  EXPECT_EQ(saved_every("0.5ep", 1), (Names{"step=3.ckpt", "step=6.ckpt"}));
  EXPECT_EQ(saved_every("0.5dur", 2), (Names{"step=12.ckpt", "step=6.ckpt"}));
  EXPECT_EQ(saved_every(Seconds(1e-9), 1).size(), 6U);
  EXPECT_EQ(saved_every("1h", 1), Names{"step=6.ckpt"});  // at its end
}

TEST(SavePeriod, ExcludesTheOtherTriggers) {
  const std::string error = error_of([] { (void)ModelCheckpoint({.every = Period("5ba"), .every_n_epochs = 2}); });
  EXPECT_TRUE(has(error, "exclude each other")) << error;
}

TEST(SavePeriod, RefusesAShareOfARunWithoutAnEnd) {
  TrainerOptions options = quiet(-1, {ModelCheckpoint({.every = Period("0.1dur")})});
  options.callbacks.push_back(LambdaCallback(
      {.on_train_start = [](Trainer& t, LightningModule&) { t.request_stop("the test would not end"); }}));
  TinyModule module;
  const std::string error = error_of([&] { Trainer(options).fit(module, tiny_loader(24)); });
  EXPECT_TRUE(has(error, "ModelCheckpointOptions.every: 0.1dur is a share of a run without an end")) << error;
}

TEST(Completes, RefusesAPeriodOfTime) {
  TrainerOptions options = quiet(1, {});
  options.callbacks.push_back(
      LambdaCallback({.on_train_batch_end = [](Trainer& t, LightningModule&, const at::Tensor&, const Batch&, int64_t) {
        (void)t.completes("1h");
      }}));
  TinyModule module;
  const std::string error = error_of([&] { Trainer(options).fit(module, tiny_loader(24)); });
  EXPECT_TRUE(has(error, "a period of 00:01:00:00")) << error;
  EXPECT_TRUE(has(error, "Measure the time")) << error;
}

}  // namespace
}  // namespace levin::validation_period_test
