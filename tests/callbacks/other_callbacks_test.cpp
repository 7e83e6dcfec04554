// The smaller callbacks, each in a real fit.
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "callbacks/quiet_trainer.h"
#include "callbacks/resume.h"
#include "levin/callbacks/gradient_accumulation_scheduler.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/callbacks/learning_rate_monitor.h"
#include "levin/callbacks/model_checkpoint.h"
#include "levin/callbacks/model_summary.h"
#include "levin/callbacks/stochastic_weight_averaging.h"
#include "levin/callbacks/timer.h"
#include "levin/loggers/csv_logger.h"
#include "levin/optim/adam.h"
#include "levin/optim/step_schedulers.h"
#include "support/captured_console.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::other_callbacks_test {
namespace {

using namespace test;

// ---- GradientAccumulationScheduler ----------------------------------------------------------------------------------

std::vector<int64_t> steps_per_epoch(std::map<int64_t, int64_t> scheduling, int64_t samples, int64_t epochs) {
  std::vector<int64_t> steps;
  int64_t before = 0;
  LambdaCallback count({.on_train_epoch_end = [&](Trainer& trainer, LightningModule&) {
    steps.push_back(trainer.global_step() - before);
    before = trainer.global_step();
  }});
  TinyModule module;
  Trainer(quiet(epochs, {GradientAccumulationScheduler({.scheduling = scheduling}), count}))
      .fit(module, tiny_loader(samples, 1));
  return steps;
}

TEST(GradientAccumulationScheduler, ChangesTheWindowAtItsEpochs) {
  EXPECT_EQ(steps_per_epoch({{1, 2}, {3, 4}}, 10, 4), (std::vector<int64_t>{10, 5, 5, 3}));
  EXPECT_EQ(steps_per_epoch({{0, 2}, {2, 1}}, 10, 4), (std::vector<int64_t>{5, 5, 10, 10}));
}

TEST(GradientAccumulationScheduler, RefusesWhatItCannotDo) {
  using G = GradientAccumulationScheduler;
  EXPECT_TRUE(has(error_of([] { G({}); }), "scheduling"));
  EXPECT_TRUE(has(error_of([] { G({.scheduling = {{-1, 2}}}); }), "epochs >= 0"));
  EXPECT_TRUE(has(error_of([] { G({.scheduling = {{0, 0}}}); }), "at least 1 batch"));
  TinyModule module;
  TrainerOptions options = quiet(1, G({.scheduling = {{0, 2}}}));
  options.accumulate_grad_batches = 4;
  EXPECT_TRUE(has(error_of([&] { Trainer(options).fit(module, tiny_loader(8)); }), "accumulate_grad_batches is 4"));
  options.accumulate_grad_batches = 1;
  module.set_automatic_optimization(false);
  EXPECT_TRUE(has(error_of([&] { Trainer(options).fit(module, tiny_loader(8)); }), "manual optimization"));
}

// ---- Timer ----------------------------------------------------------------------------------------------------------

TEST(Timer, EndsTheRunWhenTheTimeIsUp) {
  const CapturedConsole console;
  TinyModule module;
  module.on_training_step = [](int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  auto timer = std::make_shared<Timer>(TimerOptions{.duration = Seconds(0.1)});
  Trainer trainer(quiet(-1, {timer}));
  trainer.fit(module, tiny_loader(24));
  EXPECT_GE(timer->time_elapsed().count(), 0.1);
  EXPECT_GE(trainer.global_step(), 1);
  EXPECT_LE(trainer.global_step(), 5);
  EXPECT_EQ(timer->time_remaining(), Seconds(0));
  EXPECT_TRUE(console.has("Timer: the time of 100 ms is up."));
}

TEST(Timer, ByEpochsFinishesTheEpoch) {
  TinyModule module;
  Trainer trainer(quiet(-1, Timer({.duration = Seconds(1e-6), .interval = TimerInterval::epoch, .verbose = false})));
  trainer.fit(module, tiny_loader(24));
  EXPECT_EQ(trainer.global_step(), 6);
}

TEST(Timer, SpentTimeIsKeptAndThenNoStepIsTaken) {
  Timer first({.duration = Seconds(5)});
  State state = first.state_dict();
  state.set("elapsed.0", 7.5);
  auto second = std::make_shared<Timer>(TimerOptions{.duration = Seconds(5), .verbose = false});
  second->load_state_dict(state);
  EXPECT_EQ(second->time_elapsed(), Seconds(7.5));
  TinyModule module;
  Trainer trainer(quiet(3, {second}));
  trainer.fit(module, tiny_loader(24));
  EXPECT_EQ(trainer.global_step(), 0);
}

TEST(Timer, MaxTimeMayBeLessThanASecond) {
  TinyModule module;
  TrainerOptions options = quiet(-1, {});
  options.max_time = Seconds(0.05);
  Trainer trainer(options);
  trainer.fit(module, tiny_loader(24));
  EXPECT_GE(trainer.global_step(), 2);
  EXPECT_GE(trainer.callback<Timer>()->time_elapsed().count(), 0.05);
}

// ---- LearningRateMonitor --------------------------------------------------------------------------------------------

using Column = std::vector<std::pair<int64_t, double>>;  // step, value

struct Recorder final : Logger {
  void start(const std::string&, bool) override {}
  void log_metrics(const MetricList& metrics, const LogPoint& at) override {
    for (const auto& [name, value] : metrics) columns[name].emplace_back(at.step, value);
  }
  std::map<std::string, Column> columns;
};

std::map<std::string, Column> rates(LearningRateMonitorOptions options,
                                    std::function<OptimizerConfig(TinyModule&)> make, int64_t log_every = 2,
                                    int64_t accumulate = 1) {
  auto recorder = std::make_shared<Recorder>();
  TrainerOptions trainer_options = quiet(2, LearningRateMonitor(options));
  trainer_options.logger = recorder;
  trainer_options.log_every_n_steps = log_every;
  trainer_options.accumulate_grad_batches = accumulate;
  TinyModule module;
  module.make_optimizers = std::move(make);
  Trainer trainer(trainer_options);
  trainer.fit(module, tiny_loader(24));
  std::map<std::string, Column> found;
  for (const auto& [name, column] : recorder->columns) {
    if (name.find("lr") != std::string::npos || name == "mine") found[name] = column;
  }
  return found;
}

OptimizerConfig halving(TinyModule& m, Interval interval, std::string name = "") {
  return {AdamW(m.parameters(), {.lr = 0.4}),
          StepLR({.step_size = 1, .gamma = 0.5}),
          {.interval = interval, .name = std::move(name)}};
}

TEST(LearningRateMonitor, WritesAsTheSchedulerMoves) {
  EXPECT_EQ(rates({}, [](TinyModule& m) { return halving(m, Interval::epoch); }),
            (std::map<std::string, Column>{{"lr-AdamW", {{0, 0.4}, {6, 0.2}}}}));
  const auto by_step = rates({}, [](TinyModule& m) { return halving(m, Interval::step); }).at("lr-AdamW");
  ASSERT_EQ(by_step.size(), 6U);
  EXPECT_EQ(by_step[0], (std::pair<int64_t, double>{1, 0.2}));
  EXPECT_EQ(by_step[5].first, 11);
}

TEST(LearningRateMonitor, WritesOneRowPerWindow) {
  const auto columns = rates(
      {.logging_interval = LoggingInterval::step}, [](TinyModule& m) { return halving(m, Interval::step); }, 1, 3);
  EXPECT_EQ(columns.at("lr-AdamW"), (Column{{0, 0.4}, {1, 0.2}, {2, 0.1}, {3, 0.05}}));
}

TEST(LearningRateMonitor, WritesTheRowsOfAllStepsOnceAStopIsRequested) {
  auto recorder = std::make_shared<Recorder>();
  const LambdaCallback stop({.on_train_batch_end = [](Trainer& trainer, LightningModule&, const at::Tensor&,
                                                      const Batch&, int64_t) { trainer.request_stop(); }});
  std::vector<bool> ended_logged_window;
  const LambdaCallback look(
      {.on_train_batch_end = [&](Trainer& trainer, LightningModule&, const at::Tensor&, const Batch&, int64_t) {
        ended_logged_window.push_back(trainer.ends_logged_window());
      }});
  TrainerOptions options = quiet(1, {look, stop, LearningRateMonitor({.logging_interval = LoggingInterval::step})});
  options.logger = recorder;
  options.log_every_n_steps = 100;
  options.min_steps = 3;
  TinyModule module;
  module.make_optimizers = [](TinyModule& m) { return halving(m, Interval::step); };
  Trainer(options).fit(module, tiny_loader(24));
  EXPECT_EQ(recorder->columns["lr-AdamW"], (Column{{1, 0.2}, {2, 0.1}}));
  EXPECT_EQ(ended_logged_window, (std::vector<bool>{false, true, true}));
}

TEST(LearningRateMonitor, NamesGroupsMomentumAndSchedulers) {
  const auto columns = rates({.log_momentum = true, .log_weight_decay = true}, [](TinyModule& m) {
    AdamW optimizer({{.params = {m.layer->weight}, .lr = 0.1}, {.params = {m.layer->bias}, .lr = 0.2}},
                    {.weight_decay = 0.3});
    return OptimizerConfig(std::move(optimizer));
  });
  std::vector<std::string> names;
  for (const auto& [name, column] : columns) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"lr-AdamW/pg1", "lr-AdamW/pg1-momentum", "lr-AdamW/pg1-weight_decay",
                                             "lr-AdamW/pg2", "lr-AdamW/pg2-momentum", "lr-AdamW/pg2-weight_decay"}));
  EXPECT_EQ(columns.at("lr-AdamW/pg2")[0].second, 0.2);
  EXPECT_EQ(columns.at("lr-AdamW/pg1-momentum")[0].second, 0.9);
  EXPECT_EQ(columns.at("lr-AdamW/pg1-weight_decay")[0].second, 0.3);
  EXPECT_TRUE(rates({}, [](TinyModule& m) { return halving(m, Interval::epoch, "mine"); }).contains("mine"));
}

TEST(LearningRateMonitor, NumbersOptimizersOfOneName) {
  auto recorder = std::make_shared<Recorder>();
  TrainerOptions options = quiet(1, LearningRateMonitor());
  options.logger = recorder;
  TinyModule module;
  module.set_automatic_optimization(false);
  module.make_optimizers = [](TinyModule& m) {
    OptimizerConfig both(SGD({m.layer->weight}, {.lr = 0.1}));
    both.add(SGD({m.layer->bias}, {.lr = 0.2}));
    return both;
  };
  Trainer(options).fit(module, tiny_loader(8));
  EXPECT_EQ(recorder->columns.at("lr-SGD")[0].second, 0.1);
  EXPECT_EQ(recorder->columns.at("lr-SGD-1")[0].second, 0.2);
}

// From the second epoch on, the averaging's scheduler, which steps with epochs, is used. The rows stay the rows of
// steps, also where the run is resumed in the third.
TEST(LearningRateMonitor, AResumedRunWritesTheRowsOfAnUninterruptedOne) {
  for (const int64_t accumulate : {1, 2}) {
    const TemporaryFolder folder;
    const std::string path = folder / "cut.ckpt";
    auto fit = [&](const std::shared_ptr<Callback>& extra, const std::string& ckpt_path, const std::string& error) {
      auto recorder = std::make_shared<Recorder>();
      Callbacks callbacks{LearningRateMonitor(),
                          StochasticWeightAveraging({.swa_lrs = 0.05, .swa_epoch_start = int64_t{2}})};
      if (extra) callbacks.push_back(extra);
      TrainerOptions options = quiet(4, std::move(callbacks));
      options.logger = recorder;
      options.log_every_n_steps = 1;
      options.accumulate_grad_batches = accumulate;
      TinyModule module;
      module.make_optimizers = [](TinyModule& m) { return halving(m, Interval::step, "mine"); };
      Trainer trainer(options);
      const std::string seen = error_of([&] { trainer.fit(module, tiny_loader(24), {}, ckpt_path); });
      EXPECT_TRUE(error.empty() ? seen.empty() : has(seen, error)) << seen;
      return recorder->columns.at("mine");
    };
    const Column whole = fit(nullptr, "", "");
    Column both = fit(std::make_shared<SaveThenFail>(path, 16 / accumulate), "", "the power is gone");
    const Column rest = fit(nullptr, path, "");
    both.insert(both.end(), rest.begin(), rest.end());
    EXPECT_EQ(both, whole) << accumulate;
    EXPECT_EQ(whole.size(), 24U / static_cast<size_t>(accumulate));
  }
}

TEST(LearningRateMonitor, RefusesAStateThatIsNotWhole) {
  LearningRateMonitor monitor;
  State state;
  state.set("optimizers", std::vector<int64_t>{0, 1});
  state.set("names", std::vector<std::string>{"lr-SGD"});
  state.set("intervals", std::vector<std::string>{"step"});
  EXPECT_TRUE(has(error_of([&] { monitor.load_state_dict(state); }),
                  "LearningRateMonitor: the saved state has 2 optimizers, 1 names and 1 intervals"));
  auto resumed = std::make_shared<LearningRateMonitor>();
  state.set("optimizers", std::vector<int64_t>{3});
  state.set("last_step", int64_t{0});
  const LambdaCallback forge({.on_fit_start = [&](Trainer&, LightningModule&) { resumed->load_state_dict(state); }});
  TrainerOptions options = quiet(1, {resumed, std::make_shared<LambdaCallback>(forge)});
  options.logger = std::make_shared<Recorder>();
  TinyModule module;
  Trainer trainer(options);
  EXPECT_TRUE(has(error_of([&] { trainer.fit(module, tiny_loader(8)); }),
                  "LearningRateMonitor: the saved state watches optimizer 3, and the run has 1 optimizer"));
}

TEST(LearningRateMonitor, NeedsALogger) {
  TinyModule module;
  Trainer trainer(quiet(1, LearningRateMonitor()));
  EXPECT_TRUE(has(error_of([&] { trainer.fit(module, tiny_loader(8)); }), "no logger"));
}

// ---- ModelSummary and LambdaCallback --------------------------------------------------------------------------------

struct Nested : TinyModule {
  Nested() {
    head->push_back(torch::nn::Linear(1000, 20));
    head->push_back(torch::nn::BatchNorm1d(20));
    register_module("head", head);
    layer->bias.set_requires_grad(false);
    head->eval();
  }
  torch::nn::Sequential head;
};

TEST(ModelSummary, ShowsLayersAndTotalsInAlignedColumns) {
  const Nested module;
  EXPECT_EQ(model_summary_text(module, 1),
            "name   type        parameters  mode   weights\n"
            "layer  Linear               5  train  weight 1 x 4, bias 1\n"
            "head   Sequential      20,060  eval\n"
            "20,064 trainable parameters, 1 non-trainable, 20,065 in total, 78.4 KiB and 168 B of buffers");
  EXPECT_TRUE(has(model_summary_text(module, -1), "head.1  BatchNorm1d          40  eval   weight 20, bias 20"));
  EXPECT_EQ(model_summary_text(module, 0).find('\n'), std::string::npos);
}

TEST(ModelSummary, CountsSharedWeightsOnceAndTheRunsDtype) {
  struct Tied : TinyModule {
    Tied() { register_module("twin", layer.ptr()); }
  } module;
  EXPECT_TRUE(has(model_summary_text(module, 1), "5 in total"));
  const CapturedConsole console;
  TrainerOptions options = quiet(1, ModelSummary());
  options.precision = "64-true";
  TinyModule one;
  TrainerOptions run = options;
  run.limit_train_batches = int64_t{0};
  Trainer(run).fit(one, tiny_loader(8));
  EXPECT_TRUE(console.has("5 in total, 40 B"));
}

TEST(DefaultCallbacks, SummaryBarAndCheckpointComeByThemselves) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  TinyModule module;
  TrainerOptions options;
  options.max_epochs = 2;
  options.default_root_dir = folder.path();
  options.profiler = "simple";
  Trainer trainer(options);
  trainer.fit(module, tiny_loader(24), tiny_loader(16));
  EXPECT_TRUE(console.has("layer  Linear")) << console.text();
  EXPECT_TRUE(console.has("epoch 1/1: 6 batches"));
  EXPECT_TRUE(console.has("max_epochs (2) is reached"));
  EXPECT_TRUE(console.has("training_step"));
  const std::string best = folder / "levin_logs/version_0/checkpoints/epoch=1-step=12.ckpt";
  EXPECT_TRUE(std::filesystem::exists(best));
  EXPECT_EQ(trainer.callback<ModelCheckpoint>()->best_model_path(), best);
  EXPECT_EQ(trainer.test(module, tiny_loader(16), "best").size(), 1U);
}

TEST(LambdaCallback, CallsWhatIsSet) {
  std::vector<std::string> calls;
  LambdaCallback callback({
      .on_fit_start = [&](Trainer&, LightningModule&) { calls.emplace_back("fit_start"); },
      .on_train_batch_end =
          [&](Trainer&, LightningModule&, const at::Tensor&, const Batch& batch, int64_t index) {
            calls.push_back(std::to_string(index) + ":" + std::to_string(batch.size()));
          },
      .on_validation_epoch_end = [&](Trainer&, LightningModule&) { calls.emplace_back("val"); },
  });
  TinyModule module;
  TrainerOptions options = quiet(1, callback);
  options.num_sanity_val_steps = 0;
  Trainer(options).fit(module, tiny_loader(6), tiny_loader(4));
  EXPECT_EQ(calls, (std::vector<std::string>{"fit_start", "0:4", "1:2", "val"}));
}

}  // namespace
}  // namespace levin::other_callbacks_test
