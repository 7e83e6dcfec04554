// Rates of given points, and of fits whose steps take a known time.
#include "levin/callbacks/throughput_monitor.h"

#include <gtest/gtest.h>

#include <thread>

#include "callbacks/quiet_trainer.h"
#include "callbacks/resume.h"
#include "support/captured_console.h"
#include "support/field_count.h"
#include "support/tiny_module.h"

namespace levin::throughput_monitor_test {
namespace {

using namespace test;

TEST(Throughput, IsTheDifferenceOverTheWindow) {
  Throughput throughput(3, "|", 1, 1000.0);
  EXPECT_TRUE(throughput.compute().empty());
  throughput.update({1, 1, 10, 7, 500});
  EXPECT_EQ(throughput.compute(), (Metrics{{"time", 1}, {"batches", 1}, {"samples", 10}, {"lengths", 7}}));
  throughput.update({2, 2, 20, 14, 1000});
  throughput.update({4, 3, 30, 21, 1500});
  throughput.update({6, 4, 36, 31, 2000});  // the first point leaves the window: from 2 s to 6 s
  EXPECT_EQ(throughput.compute(),
            (Metrics{{"time", 6},
                     {"batches", 4},
                     {"samples", 36},
                     {"lengths", 31},
                     {"device|batches_per_sec", 0.5},
                     {"device|samples_per_sec", 4},
                     {"device|items_per_sec", 4 * 8.5},  // 17 items in a sample of each of two batches
                     {"device|flops_per_sec", 250},
                     {"device|mfu", 0.25}}));
}

TEST(Throughput, OfSeveralDevicesIsTheirSum) {
  Throughput throughput(2, "/", 4, std::nullopt);
  throughput.update({0, 1, 10, std::nullopt, std::nullopt});
  throughput.update({2, 2, 20, std::nullopt, std::nullopt});
  EXPECT_EQ(throughput.compute(), (Metrics{{"time", 2},
                                           {"batches", 2},
                                           {"samples", 20},
                                           {"device/batches_per_sec", 0.5},
                                           {"device/samples_per_sec", 5},
                                           {"batches_per_sec", 2},
                                           {"samples_per_sec", 20}}));
}

struct Recorder final : Logger {
  void start(const std::string&, bool) override {}
  void log_metrics(const MetricList& metrics, const LogPoint& at) override {
    for (const auto& [name, value] : metrics) rows[name].emplace_back(at.step, value);
  }
  std::map<std::string, std::vector<std::pair<int64_t, double>>> rows;
};

using Rows = std::map<std::string, std::vector<std::pair<int64_t, double>>>;

Rows rows_of(ThroughputMonitor monitor, TinyModule& module, int64_t accumulate = 1) {
  auto recorder = std::make_shared<Recorder>();
  TrainerOptions options = quiet(1, std::move(monitor));
  options.logger = recorder;
  options.log_every_n_steps = 2;
  options.accumulate_grad_batches = accumulate;
  Trainer(options).fit(module, tiny_loader(22), tiny_loader(16));
  return recorder->rows;
}

TEST(ThroughputMonitor, WritesTotalsRatesAndFlopsOfTrainingAndValidation) {
  TinyModule module;
  const auto rows = rows_of(ThroughputMonitor({.length_dim = 1, .available_flops = 1e9}), module);
  using Column = std::vector<std::pair<int64_t, double>>;
  EXPECT_EQ(rows.at("train/batches"), (Column{{1, 2}, {3, 4}, {5, 6}}));
  EXPECT_EQ(rows.at("train/samples"), (Column{{1, 8}, {3, 16}, {5, 22}})) << "the last batch has two";
  EXPECT_EQ(rows.at("train/lengths"), (Column{{1, 8}, {3, 16}, {5, 24}})) << "four items in a sample, six batches";
  EXPECT_EQ(rows.at("validate/batches"), (Column{{1, 2}, {3, 4}}));
  for (const char* stage : {"train/", "validate/"}) {
    const std::string device = std::string(stage) + "device/";
    for (const auto& [step, rate] : rows.at(device + "batches_per_sec")) {
      EXPECT_GT(rate, 0);
      const size_t row = static_cast<size_t>(step / 2);
      EXPECT_NEAR(rows.at(device + "mfu")[row].second, rows.at(device + "flops_per_sec")[row].second / 1e9, 1e-12);
    }
  }
  // Linear(4, 1): 8 FLOPs a sample forward, as many for the weights' gradient.
  const auto per_sample = [&](const std::string& stage) {
    return rows.at(stage + "/device/flops_per_sec")[0].second / rows.at(stage + "/device/samples_per_sec")[0].second;
  };
  EXPECT_NEAR(per_sample("train"), 16, 1e-9);
  EXPECT_NEAR(per_sample("validate"), 8, 1e-9);
}

TEST(ThroughputMonitor, TrainingDoesNotPayForTheValidationsWithin) {
  struct Slow : TinyModule {
    void validation_step(const Batch&, int64_t) override {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  } module;
  auto recorder = std::make_shared<Recorder>();
  TrainerOptions options = quiet(1, ThroughputMonitor());
  options.logger = recorder;
  options.log_every_n_steps = 1;
  options.val_check_interval = int64_t{2};
  options.num_sanity_val_steps = 0;
  Trainer trainer(options);
  trainer.fit(module, tiny_loader(24), tiny_loader(8));  // three validations of two batches, the last one after the end
  EXPECT_GE(trainer.elapsed().count(), 0.6);
  EXPECT_LT(recorder->rows.at("train/time").back().second, trainer.elapsed().count() - 0.55);
}

// Five epochs of six batches of training and four of validation: in one run, or in two, the second from the middle of
// the fourth epoch on.
TEST(ThroughputMonitor, AResumedRunContinuesTheTotals) {
  const TemporaryFolder folder;
  const std::string path = folder / "cut.ckpt";
  auto fit = [&](const std::shared_ptr<Callback>& extra, const std::string& ckpt_path, const std::string& error) {
    TinyModule module;
    auto recorder = std::make_shared<Recorder>();
    Callbacks callbacks{ThroughputMonitor({.length_dim = 1})};
    if (extra) callbacks.push_back(extra);
    TrainerOptions options = quiet(5, std::move(callbacks));
    options.logger = recorder;
    options.log_every_n_steps = 2;
    Trainer trainer(options);
    const std::string seen = error_of([&] { trainer.fit(module, tiny_loader(22), tiny_loader(16), ckpt_path); });
    EXPECT_TRUE(error.empty() ? seen.empty() : has(seen, error)) << seen;
    return recorder->rows;
  };
  const Rows whole = fit(nullptr, "", "");
  const Rows first = fit(std::make_shared<SaveThenFail>(path, 21), "", "the power is gone");
  const Rows rest = fit(nullptr, path, "");
  for (const char* name : {"train/batches", "train/samples", "train/lengths", "validate/batches", "validate/samples"}) {
    auto both = first.at(name);
    both.insert(both.end(), rest.at(name).begin(), rest.at(name).end());
    EXPECT_EQ(both, whole.at(name)) << name;
  }
  EXPECT_GT(rest.at("train/time").front().second, first.at("train/time").back().second);
}

// A validation that was not finished is repeated, with the same steps.
TEST(ThroughputMonitor, AnUnfinishedValidationIsNotCounted) {
  struct Stops : TinyModule {
    void validation_step(const Batch&, int64_t batch_idx) override {
      if (++seen == 7) throw Error("batch " + std::to_string(batch_idx));
    }
    int seen = 0;
  } module;
  auto monitor = std::make_shared<ThroughputMonitor>();
  TrainerOptions options = quiet(5, {monitor});
  options.logger = std::make_shared<Recorder>();
  options.num_sanity_val_steps = 0;
  Trainer trainer(options);
  EXPECT_TRUE(has(error_of([&] { trainer.fit(module, tiny_loader(8), tiny_loader(16)); }), "batch 2"));
  EXPECT_EQ(monitor->state_dict().get<int64_t>("evaluated"), 4);
  EXPECT_EQ(monitor->state_dict().get<int64_t>("batches"), 4);
}

TEST(ThroughputMonitor, TakesCountsAndFlopsFromItsUser) {
  TinyModule module;
  const auto rows = rows_of(
      ThroughputMonitor(
          {.separator = ".", .flops_per_batch = 100.0}, [](const Batch&) { return 3; }, [](const Batch&) { return 5; }),
      module, 2);
  using Column = std::vector<std::pair<int64_t, double>>;
  EXPECT_EQ(rows.at("train.samples"), (Column{{1, 12}})) << "at the end of the second window of two batches";
  EXPECT_EQ(rows.at("train.lengths"), (Column{{1, 20}}));
  EXPECT_NEAR(rows.at("train.device.flops_per_sec")[0].second, 100 * rows.at("train.device.batches_per_sec")[0].second,
              1e-6);
  EXPECT_NEAR(rows.at("train.device.items_per_sec")[0].second, 15 * rows.at("train.device.batches_per_sec")[0].second,
              1e-6);
  EXPECT_FALSE(rows.contains("train.device.mfu")) << "the peak of the CPU is not known";
  const auto none = rows_of(ThroughputMonitor({.flops_per_batch = 0.0}), module);
  EXPECT_FALSE(none.contains("train/device/flops_per_sec"));
}

TEST(ThroughputMonitor, AStepThatThrowsLeavesNoCounter) {
  TinyModule module;
  module.on_training_step = [](int64_t) { throw Error("enough"); };
  auto monitor = std::make_shared<ThroughputMonitor>();
  TrainerOptions options = quiet(1, {monitor});
  options.logger = std::make_shared<Recorder>();
  Trainer trainer(options);
  EXPECT_TRUE(has(error_of([&] { trainer.fit(module, tiny_loader(8)); }), "enough"));
  const FlopCounter counter;  // would throw if the monitor's were still there
}

TEST(ThroughputMonitor, ReportsWhatIsWrong) {
  using T = ThroughputMonitor;
  EXPECT_TRUE(
      has(error_of([] { T({.window_size = 1}); }), "ThroughputMonitorOptions.window_size: must be >= 2, got 1"));
  TinyModule module;
  EXPECT_TRUE(has(error_of([&] { rows_of(T({.length_dim = 2}), module); }), "length_dim is 2"));
  Trainer trainer(quiet(1, T()));
  EXPECT_TRUE(
      has(error_of([&] { trainer.fit(module, tiny_loader(8)); }), "ThroughputMonitor: the trainer has no logger"));
  EXPECT_EQ(levin::testing::field_count<ThroughputMonitorOptions>(), field_names<ThroughputMonitorOptions>().size());
}

}  // namespace
}  // namespace levin::throughput_monitor_test
