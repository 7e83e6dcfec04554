// The split of steps: against time that was really spent, in real fits.
#include "levin/profilers/time_split.h"

#include <gtest/gtest.h>

#include <thread>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/callbacks/progress_bar.h"
#include "levin/data/loading/dataloader.h"
#include "support/captured_console.h"
#include "support/tiny_module.h"

namespace levin::time_split_test {
namespace {

using namespace test;

// Returns the seconds that it took, which are more on a busy machine.
double work(double milliseconds) {
  const auto began = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(milliseconds));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

double sum(const StepTimes& times) {
  double total = 0;
  for (const double one : times.seconds) total += one;
  return total;
}

TEST(TimeSplit, PartsSumToTheTimeItRan) {
  TimeSplit split;
  work(3);  // not measured: it does not run
  double data = 0, forward = 0;
  const auto began = std::chrono::steady_clock::now();
  {
    const TimeSplit::Running running(split);
    split.enter(StepPart::data);
    data = work(10);
    split.begin_step();
    split.enter(StepPart::forward);
    forward = work(20);
    const StepTimes now = split.times();  // the open part counts
    EXPECT_GE(now[StepPart::forward], 0.999 * forward);
    split.enter(StepPart::data);
  }
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  work(3);
  const StepTimes times = split.times();
  EXPECT_EQ(times.steps, 1);
  EXPECT_GE(times[StepPart::data], 0.999 * data);
  EXPECT_GE(times[StepPart::forward], 0.999 * forward);
  EXPECT_LE(sum(times), 1.001 * elapsed) << "no time is counted twice";
  split.reset();
  EXPECT_EQ(sum(split.times()), 0);
  EXPECT_EQ(split.times().steps, 0);
}

TEST(TimeSplit, SharesLeaveValidationOut) {
  StepTimes times;
  times.steps = 100;
  times.seconds[static_cast<size_t>(StepPart::data)] = 1;
  times.seconds[static_cast<size_t>(StepPart::backward)] = 3;
  times.seconds[static_cast<size_t>(StepPart::validation)] = 6;
  EXPECT_DOUBLE_EQ(times.training(), 4);
  EXPECT_DOUBLE_EQ(times.share(StepPart::data), 0.25);
  const std::string table = times.table();
  EXPECT_TRUE(has(table, "100 training steps in 4.000 s, 40000.0 us each")) << table;
  EXPECT_TRUE(has(table, "25.0 %")) << table;
  EXPECT_FALSE(has(table, "transfer")) << "parts without time are left out";
  EXPECT_EQ(StepTimes().table(), "");
  EXPECT_EQ(StepTimes().share(StepPart::data), 0);
}

// A fit whose parts each take a different time, so that none can be mistaken for another.
struct SlowModule : TinyModule {
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
    work(6);
    return TinyModule::training_step(batch, batch_idx);
  }
  void on_before_backward(const at::Tensor&) override { work(1); }
  Batch transfer_batch_to_device(Batch batch, at::Device, int64_t) override {
    work(3);
    return batch;
  }
  void validation_step(const Batch&, int64_t) override { work(15); }
  void configure_gradient_clipping(Optimizer&, double, ClipAlgorithm) override { work(4); }
};

struct SlowLoader final : Loader {
  explicit SlowLoader(double milliseconds, int64_t batches) : wait(milliseconds), count(batches) {}
  void start(int64_t, int64_t first) override { at = first; }
  bool next(Batch& batch) override {
    if (at++ >= count) return false;
    work(wait);
    inner->start(0, 0);
    return inner->next(batch);
  }
  [[nodiscard]] std::optional<int64_t> num_batches() const override { return count; }
  double wait;
  int64_t count;
  int64_t at = 0;
  std::shared_ptr<TensorLoader> inner = tiny_loader(4);
};

TEST(TimeSplit, OfAFitHasEachPartInItsPlace) {
  SlowModule module;
  LambdaCallback slow(
      {.on_train_batch_end = [](Trainer&, LightningModule&, const at::Tensor&, const Batch&, int64_t) { work(2); }});
  TrainerOptions options = quiet(1, slow);
  options.num_sanity_val_steps = 0;
  Trainer trainer(options);
  const auto began = std::chrono::steady_clock::now();
  trainer.fit(module, std::make_shared<SlowLoader>(9, 10), tiny_loader(8));
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  const StepTimes times = trainer.time_split().times();
  EXPECT_EQ(times.steps, 10);
  const std::vector<std::pair<StepPart, double>> spent{{StepPart::data, 0.09},      {StepPart::transfer, 0.03},
                                                       {StepPart::forward, 0.06},   {StepPart::callbacks, 0.03},
                                                       {StepPart::optimizer, 0.04}, {StepPart::validation, 0.03}};
  for (const auto& [part, seconds] : spent) {
    EXPECT_GE(times[part], seconds) << step_part_name(part);
  }
  EXPECT_EQ(times[StepPart::communication], 0);
  EXPECT_GT(times[StepPart::backward], 0);
  EXPECT_LE(sum(times), 1.01 * elapsed) << "no time is counted twice";
  EXPECT_GE(sum(times), 0.28);
}

TEST(TimeSplit, WithManualOptimizationTheRestOfTheStepIsForward) {
  struct Manual : TinyModule {
    Manual() { set_automatic_optimization(false); }
    at::Tensor training_step(const Batch& batch, int64_t) override {
      const at::Tensor loss = torch::mse_loss(layer->forward(batch[0]), batch[1]);
      optimizer().optimizer().zero_grad();
      manual_backward(loss);
      work(4);
      optimizer().step();
      work(4);
      return loss;
    }
    void configure_gradient_clipping(Optimizer&, double, ClipAlgorithm) override { work(3); }
  } module;
  Trainer trainer(quiet(1, {}));
  trainer.fit(module, tiny_loader(20));
  const StepTimes times = trainer.time_split().times();
  EXPECT_GE(times[StepPart::forward], 5 * 0.008);
  EXPECT_GE(times[StepPart::optimizer], 5 * 0.003);
}

TEST(TimeSplit, StopsWithARunThatFails) {
  TinyModule module;
  module.on_training_step = [](int64_t index) {
    if (index == 2) throw Error("enough");
  };
  Trainer trainer(quiet(1, {}));
  EXPECT_TRUE(has(error_of([&] { trainer.fit(module, tiny_loader(24)); }), "enough"));
  const double spent = sum(trainer.time_split().times());
  work(5);
  EXPECT_NEAR(sum(trainer.time_split().times()), spent, 0.001);
  module.on_training_step = nullptr;
  trainer.fit(module, tiny_loader(8));
  EXPECT_EQ(trainer.time_split().times().steps, 2) << "the next fit begins anew";
}

// ---- waiting for data

StepTimes times_of(double data, double rest, int64_t steps) {
  StepTimes times;
  times.steps = steps;
  times.seconds[static_cast<size_t>(StepPart::data)] = data;
  times.seconds[static_cast<size_t>(StepPart::forward)] = rest;
  return times;
}

TEST(DataWait, IsReportedWhenItIsTrueOverSomeTime) {
  EXPECT_EQ(data_wait_text(times_of(4.3, 5.7, 100), 0, 8),
            "waiting for data 43 % of the time: raise num_workers (0 now, 8 cores here)");
  EXPECT_EQ(data_wait_text(times_of(4.3, 5.7, 100), 8, 8),
            "waiting for data 43 % of the time: make samples cheaper to load, as num_workers fills the cores (8 now, 8 "
            "cores here)");
  EXPECT_EQ(data_wait_text(times_of(9, 1, 100), std::nullopt, 8),
            "waiting for data 90 % of the time: the loader's next() is slower than training");
  EXPECT_EQ(data_wait_text(times_of(1, 9, 100), 0, 8), "") << "a tenth";
  EXPECT_EQ(data_wait_text(times_of(0.9, 0.9, 100), 0, 8), "") << "less than two seconds";
  EXPECT_EQ(data_wait_text(times_of(5, 5, 9), 0, 8), "") << "less than ten steps";
  EXPECT_EQ(data_wait_text(StepTimes(), 0, 8), "");
}

struct SlowSamples final : Dataset {
  [[nodiscard]] int64_t size() const override { return 24; }
  [[nodiscard]] Batch get(int64_t) const override {
    work(40);
    return {torch::ones({4}), torch::ones({1})};
  }
};

TEST(DataWait, TheProgressBarReportsItOnceAfterAnEpochAndInItsLines) {
  const CapturedConsole console;
  TinyModule module;
  module.on_training_step = [](int64_t) { work(20); };
  Trainer trainer(quiet(3, ProgressBar({.line_interval = Seconds(0.001)})));
  trainer.fit(module,
              std::make_shared<DataLoader>(std::make_shared<SlowSamples>(), DataLoaderOptions{.batch_size = 2}));
  int warnings = 0;
  for (const auto& line : console.lines()) {
    if (has(line, "Waiting for data ") && has(line, " % of the time: raise num_workers (0 now, ")) ++warnings;
  }
  EXPECT_EQ(warnings, 1) << console.text();
  EXPECT_TRUE(has(console.text(), ", waiting for data ")) << console.text();
}

}  // namespace
}  // namespace levin::time_split_test
