// Trains one kind of run for many steps in one process and samples what the process uses; endurance_test.py compares
// the samples.
//
//   endurance_program KIND STEPS SAMPLES_FILE [PLANT]
//
// PLANT is a fault in every step, which the test must find: bytes (64), few_bytes (16), descriptor, thread or slow.
#include <fcntl.h>
#include <torch/torch.h>
#include <unistd.h>

#include <array>
#include <deque>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "endurance/process_usage.h"
#include "levin/callbacks/device_stats_monitor.h"
#include "levin/callbacks/early_stopping.h"
#include "levin/callbacks/learning_rate_monitor.h"
#include "levin/callbacks/model_checkpoint.h"
#include "levin/callbacks/progress_bar.h"
#include "levin/callbacks/spike_detection.h"
#include "levin/callbacks/throughput_monitor.h"
#include "levin/callbacks/timer.h"
#include "levin/callbacks/weight_averaging.h"
#include "levin/core/process/console.h"
#include "levin/data/loading/dataloader.h"
#include "levin/loggers/csv_logger.h"
#include "levin/loggers/json_lines_logger.h"
#include "levin/loggers/prometheus_logger.h"
#include "levin/loggers/sqlite_logger.h"
#include "levin/loggers/tensorboard_logger.h"
#include "levin/metrics/aggregation.h"
#include "levin/metrics/classification.h"
#include "levin/metrics/regression.h"
#include "levin/optim/adam.h"
#include "levin/optim/cosine_schedulers.h"
#include "levin/optim/reduce_lr_on_plateau.h"
#include "levin/optim/step_schedulers.h"
#include "levin/profilers/simple_profiler.h"
#include "levin/trainer/fabric.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace endurance_program {
namespace {

using namespace levin;
using namespace levin::test;

constexpr int64_t kSamples = 200;
constexpr int64_t kEpochBatches = 50;  // 200 samples in batches of 4
constexpr int64_t kFitSteps = 50;      // of each of many fits

/// A run that is being measured.
class Case {
 public:
  Case(int64_t all_steps, std::string plant) : steps(all_steps), plant_(std::move(plant)), usage(kSamples) {}

  /// Counts a training step, and samples at equal distances. `drain`: empties queues, whose length depends on how busy
  /// the machine is.
  void step(const std::function<void()>& drain = nullptr) {
    ++done_;
    spoil();
    if (done_ % (steps / kSamples) != 0) return;
    if (drain) drain();
    usage.sample(done_);
  }

  [[nodiscard]] TrainerOptions options();

  const int64_t steps;
  const TemporaryFolder folder = {};

 private:
  void spoil() {
    if (plant_ == "bytes") bytes_.push_back(std::make_unique<std::array<char, 64>>());
    if (plant_ == "few_bytes") few_bytes_.emplace_back();
    if (plant_ == "descriptor" && done_ % 100 == 0) (void)::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (plant_ == "thread" && done_ % 1000 == 0) {
      std::thread([] { std::this_thread::sleep_for(std::chrono::hours(1)); }).detach();
    }
    if (plant_ == "slow") {  // for each earlier step a little more
      for (int64_t k = 0; k < 100 * done_; ++k) sum_ = sum_ + 1;
    }
  }

  int64_t done_ = 0;
  std::string plant_;
  std::vector<std::unique_ptr<std::array<char, 64>>> bytes_ = {};
  std::deque<std::array<char, 16>> few_bytes_ = {};
  volatile int64_t sum_ = 0;

 public:
  UsageLog usage;
};

/// Counts the training steps of a fit.
class CountSteps final : public Callback {
 public:
  explicit CountSteps(Case& run) : run_(&run) {}
  void on_train_batch_end(Trainer& trainer, LightningModule&, const at::Tensor&, const Batch&, int64_t) override {
    run_->step([&] { trainer.flush_logs(); });
  }

 private:
  Case* run_;
};

/// One fit of all steps without output; epochs of 50 batches.
TrainerOptions Case::options() {
  TrainerOptions options;
  options.max_epochs = -1;
  options.max_steps = steps;
  options.num_threads = 1;
  options.log_every_n_steps = 1;
  options.logger = false;
  options.enable_checkpointing = options.enable_progress_bar = options.enable_model_summary = false;
  options.default_root_dir = folder.path();
  options.callbacks.push_back(std::make_shared<CountSteps>(*this));
  return options;
}

/// TinyModule with a score that grows forever, so that every checkpoint is among the best.
class GrowingModule : public TinyModule {
 public:
  void validation_step(const Batch& batch, int64_t batch_idx) override {
    TinyModule::validation_step(batch, batch_idx);
    log("score", static_cast<double>(trainer().global_step()));
  }
  at::Tensor predict_step(const Batch& batch, int64_t) override { return forward(batch[0]); }
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>&) const override {
    return std::make_shared<GrowingModule>();
  }
};

void fit(TrainerOptions options, bool validates = false) {
  GrowingModule module;
  Trainer trainer(std::move(options));
  trainer.fit(module, tiny_loader(4 * kEpochBatches), validates ? Loaders(tiny_loader(8)) : Loaders());
}

void fit_with_logger(Case& run, Component<Logger> logger) {
  TrainerOptions options = run.options();
  options.logger = LoggerChoice{std::move(logger)};
  fit(std::move(options), /*validates=*/true);
}

// ---- loggers and checkpoints ----------------------------------------------------------------------------------------

void csv(Case& run) {
  fit_with_logger(run, CSVLogger());
}
void json_lines(Case& run) {
  fit_with_logger(run, JSONLinesLogger({.flush_secs = 0.2}));
}
void sqlite(Case& run) {
  fit_with_logger(run, SQLiteLogger({.flush_every = Seconds(0.2)}));
}
void tensorboard(Case& run) {
  fit_with_logger(run, TensorBoardLogger({.flush_secs = 0.2}));
}
void prometheus(Case& run) {
  fit_with_logger(run, PrometheusLogger({.every = Seconds(0.2)}));
}

/// The default logger, a checkpoint after each epoch among the three best, and last.ckpt.
void checkpoints(Case& run) {
  TrainerOptions options = run.options();
  options.logger = true;
  options.enable_checkpointing = true;
  options.callbacks.push_back(ModelCheckpoint({.monitor = "score", .save_last = true, .save_top_k = 3, .mode = "max"}));
  fit(std::move(options), /*validates=*/true);
}

/// Values of all kinds, once in each epoch.
class LogsAllKinds final : public Callback {
 public:
  void on_train_epoch_end(Trainer& trainer, LightningModule&) override {
    trainer.log_histogram("weights", torch::linspace(-1, 1, 64));
    trainer.log_image("image", torch::zeros({1, 4, 4}));
    trainer.log_text("text", "**epoch**");
    trainer.log_table("table", {.columns = {"class", "count"}, .rows = {{"cat", 3.0}}});
    trainer.log_system({{"temperature", 40.0}}, trainer.logging_step());
  }
};

void all_loggers(Case& run) {
  TrainerOptions options = run.options();
  options.logger =
      LoggerChoice{CSVLogger(), JSONLinesLogger({.flush_secs = 0.2}), SQLiteLogger({.flush_every = Seconds(0.2)}),
                   TensorBoardLogger({.flush_secs = 0.2}), PrometheusLogger({.every = Seconds(0.2)})};
  options.callbacks.push_back(std::make_shared<LogsAllKinds>());
  fit(std::move(options), /*validates=*/true);
}

// ---- what a run shows -----------------------------------------------------------------------------------------------

void progress_bar(Case& run) {
  TrainerOptions options = run.options();
  options.callbacks.push_back(ProgressBar({.line_interval = Seconds(0.01)}));
  fit(std::move(options), /*validates=*/true);
}

/// Warnings whose text is different each time.
void warnings(Case& run) {
  class Warns final : public Callback {
    void on_train_batch_end(Trainer& trainer, LightningModule&, const at::Tensor&, const Batch&, int64_t) override {
      Console::instance().warn("step " + std::to_string(trainer.global_step()) + " of a run that warns in each step");
    }
  };
  TrainerOptions options = run.options();
  options.callbacks.push_back(std::make_shared<Warns>());
  fit(std::move(options));
}

// ---- ways to train --------------------------------------------------------------------------------------------------

void eager(Case& run) {
  fit(run.options());
}

void recorded(Case& run) {
  TrainerOptions options = run.options();
  options.record_steps = true;
  fit(std::move(options), /*validates=*/true);
}

void dp(Case& run) {
  TrainerOptions options = run.options();
  options.strategy = "dp";
  options.devices = std::vector<std::string>{"cpu", "cpu"};
  fit(std::move(options), /*validates=*/true);
}

void workers(Case& run) {
  TrainerOptions options = run.options();
  GrowingModule module;
  Trainer trainer(std::move(options));
  const TensorDataset data{torch::randn({4 * kEpochBatches, 4}), torch::randn({4 * kEpochBatches, 1})};
  trainer.fit(module, DataLoader(data, {.batch_size = 4, .shuffle = true, .num_workers = 2}),
              DataLoader(data, {.batch_size = 100, .num_workers = 1}));
}

/// Losses that are not finite, in every tenth step: their updates are skipped.
void skipped(Case& run) {
  class Spoils final : public Callback {
    void on_train_batch_start(Trainer&, LightningModule&, const Batch& batch, int64_t batch_idx) override {
      if (batch_idx % 10 == 0) batch[1].fill_(std::numeric_limits<float>::quiet_NaN());
      if (batch_idx % 10 == 1) batch[1].fill_(0.5);
    }
  };
  TrainerOptions options = run.options();
  options.max_steps = -1;
  options.max_epochs = run.steps / kEpochBatches;
  options.nonfinite_loss = "skip";
  options.logger = true;
  options.callbacks.push_back(std::make_shared<Spoils>());
  fit(std::move(options));
}

void mixed_precision(Case& run) {
  TrainerOptions options = run.options();
  options.precision = "16-mixed";
  options.accumulate_grad_batches = int64_t{2};
  options.gradient_clip_val = 1.0;
  options.max_steps = run.steps / 2;
  fit(std::move(options), /*validates=*/true);
}

// ---- callbacks, schedulers, metrics, profilers ----------------------------------------------------------------------

void callbacks(Case& run) {
  TrainerOptions options = run.options();
  options.logger = true;
  options.log_every_n_steps = 10;
  options.callbacks.push_back(LearningRateMonitor({.log_momentum = true}));
  options.callbacks.push_back(DeviceStatsMonitor());
  options.callbacks.push_back(ThroughputMonitor());
  options.callbacks.push_back(EarlyStopping({.monitor = "score", .mode = "max"}));
  options.callbacks.push_back(SpikeDetection({.rtol = 1e9}));
  options.callbacks.push_back(levin::Timer({.duration = std::chrono::hours(99)}));
  options.callbacks.push_back(EMAWeightAveraging());
  fit(std::move(options), /*validates=*/true);
}

template <class Scheduler>
void fit_with_scheduler(Case& run, const typename Scheduler::Options& options_of, const LRSchedulerOptions& when) {
  GrowingModule module;
  module.make_optimizers = [&](TinyModule& tiny) {
    return OptimizerConfig(AdamW(tiny.parameters(), {.lr = 1e-3}), Scheduler(options_of), when);
  };
  TrainerOptions options = run.options();
  options.callbacks.push_back(LearningRateMonitor());
  options.logger = true;
  Trainer trainer(std::move(options));
  trainer.fit(module, tiny_loader(4 * kEpochBatches), tiny_loader(8));
}

void scheduler(Case& run) {
  fit_with_scheduler<CosineAnnealingLR>(run, {.T_max = 100}, {.interval = "step"});
}
void plateau(Case& run) {
  fit_with_scheduler<ReduceLROnPlateau>(run, {.mode = "max"}, {.monitor = "score"});
}

/// Metrics over sums and over all samples of an epoch.
class MetricsModule final : public GrowingModule {
 public:
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
    const at::Tensor labels = batch[1].flatten().gt(0.3).to(at::kLong);
    accuracy_(batch[0].select(1, 0), labels);
    auroc_(batch[0].select(1, 0).sigmoid(), labels);
    log("train_accuracy", accuracy_, {.on_step = true, .on_epoch = true});
    log("train_auroc", auroc_, {.on_step = false, .on_epoch = true});
    log("text_metric", 1.0, {.on_step = true, .on_epoch = true});
    return GrowingModule::training_step(batch, batch_idx);
  }

 private:
  metrics::Accuracy accuracy_{{.task = "binary"}};
  metrics::AUROC auroc_{{.task = "binary"}};
};

void metric_objects(Case& run) {
  MetricsModule module;
  TrainerOptions options = run.options();
  options.logger = true;
  Trainer trainer(std::move(options));
  trainer.fit(module, tiny_loader(4 * kEpochBatches), tiny_loader(8));
}

void profiler(Case& run) {
  TrainerOptions options = run.options();
  options.profiler = SimpleProfiler();
  fit(std::move(options), /*validates=*/true);
}

// ---- many runs in one process ---------------------------------------------------------------------------------------

/// Fits of one Trainer, which continue each other, and the other entry points in between.
void fits_of_one_trainer(Case& run) {
  GrowingModule module;
  TrainerOptions options = run.options();
  options.logger = true;
  options.enable_checkpointing = true;
  options.max_steps = -1;
  options.callbacks.push_back(ModelCheckpoint({.monitor = "score", .save_top_k = 1, .mode = "max"}));
  class OneEpoch final : public Callback {
    void on_train_epoch_end(Trainer& trainer, LightningModule&) override { trainer.request_stop("one epoch"); }
  };
  options.callbacks.push_back(std::make_shared<OneEpoch>());
  Trainer trainer(std::move(options));
  for (int64_t done = 0; done < run.steps; done += kEpochBatches) {
    trainer.fit(module, tiny_loader(4 * kEpochBatches), tiny_loader(8));
    trainer.validate(module, tiny_loader(8));
    trainer.test(module, tiny_loader(8));
    (void)trainer.predict(module, tiny_loader(8));
  }
}

/// Each fit has its own Trainer, module, loaders, loggers and checkpoints; they share a folder of versions, which is
/// emptied now and then.
void fresh_trainers(Case& run) {
  for (int64_t done = 0; done < run.steps; done += kFitSteps) {
    if (done % (20 * kFitSteps) == 0) std::filesystem::remove_all(run.folder / "levin_logs");
    TrainerOptions options = run.options();
    options.max_steps = kFitSteps;
    options.enable_checkpointing = true;
    options.logger = LoggerChoice{CSVLogger(), TensorBoardLogger(), JSONLinesLogger(),
                                  SQLiteLogger({.path = run.folder / "levin_logs/runs.sqlite"})};
    options.callbacks.push_back(ModelCheckpoint({.monitor = "score", .save_last = true, .mode = "max"}));
    GrowingModule module;
    Trainer trainer(std::move(options));
    trainer.fit(module, tiny_loader(4 * kFitSteps), tiny_loader(8));
    trainer.test(module, tiny_loader(8), "best");
  }
}

/// Fresh Trainers without files, of all strategies and ways to train that one process can have.
void fresh_kinds(Case& run) {
  for (int64_t done = 0; done < run.steps; done += kFitSteps) {
    TrainerOptions options = run.options();
    options.max_steps = kFitSteps;
    const int64_t kind = done / kFitSteps % 4;
    if (kind == 1) options.record_steps = true;
    if (kind == 2) {
      options.strategy = "dp";
      options.devices = std::vector<std::string>{"cpu", "cpu"};
    }
    if (kind == 3) options.precision = "bf16-mixed";
    GrowingModule module;
    Trainer trainer(std::move(options));
    const TensorDataset data{torch::ones({4 * kFitSteps, 4}), torch::ones({4 * kFitSteps, 1})};
    trainer.fit(module, DataLoader(data, {.batch_size = 4, .num_workers = kind == 3 ? 2 : 0}), tiny_loader(8));
  }
}

// ---- Fabric ---------------------------------------------------------------------------------------------------------

struct Net : torch::nn::Module {
  at::Tensor loss(const Batch& batch) { return torch::mse_loss(layer->forward(batch[0]), batch[1]); }
  torch::nn::Linear layer{register_module("layer", torch::nn::Linear(4, 1))};
};

void train_with_fabric(Case& run, Fabric& fabric, int64_t steps, bool in_one_call) {
  Net net;
  auto optimizer = fabric.setup(net, SGD(net.parameters(), {.lr = 0.01}));
  auto loader = fabric.setup_dataloaders(tiny_loader(4 * kEpochBatches));
  for (int64_t epoch = 0; epoch < steps / kEpochBatches; ++epoch) {
    for (const Batch& batch : loader.epoch(epoch)) {
      at::Tensor loss;
      if (in_one_call) {
        loss = fabric.step(batch, [&](const Batch& part) { return net.loss(part); });
      } else {
        optimizer.zero_grad();
        loss = [&] {
          const auto autocast = fabric.autocast();
          return net.loss(batch);
        }();
        fabric.backward(loss);
        optimizer.step();
      }
      fabric.log("loss", loss);
      run.step();
    }
    fabric.save(run.folder / "fabric.ckpt");
  }
}

void fabric(Case& run) {
  Fabric fabric({.loggers = {CSVLogger()}, .num_threads = 1, .default_root_dir = run.folder.path()});
  train_with_fabric(run, fabric, run.steps, /*in_one_call=*/false);
}

void fabric_step(Case& run) {
  Fabric fabric({.loggers = {CSVLogger()}, .num_threads = 1, .default_root_dir = run.folder.path()});
  train_with_fabric(run, fabric, run.steps, /*in_one_call=*/true);
}

void fresh_fabrics(Case& run) {
  for (int64_t done = 0; done < run.steps; done += kFitSteps) {
    if (done % (20 * kFitSteps) == 0) std::filesystem::remove_all(run.folder / "levin_logs");
    Fabric fabric({.loggers = {CSVLogger()},
                   .record_steps = done / kFitSteps % 2 == 1,
                   .num_threads = 1,
                   .default_root_dir = run.folder.path()});
    train_with_fabric(run, fabric, kFitSteps, /*in_one_call=*/true);
  }
}

const std::map<std::string, std::function<void(Case&)>>& kinds() {
  static const std::map<std::string, std::function<void(Case&)>> all{
      {"all_loggers", all_loggers},
      {"callbacks", callbacks},
      {"checkpoints", checkpoints},
      {"csv", csv},
      {"dp", dp},
      {"eager", eager},
      {"fabric", fabric},
      {"fabric_step", fabric_step},
      {"fits_of_one_trainer", fits_of_one_trainer},
      {"fresh_fabrics", fresh_fabrics},
      {"fresh_kinds", fresh_kinds},
      {"fresh_trainers", fresh_trainers},
      {"json_lines", json_lines},
      {"metric_objects", metric_objects},
      {"mixed_precision", mixed_precision},
      {"plateau", plateau},
      {"profiler", profiler},
      {"progress_bar", progress_bar},
      {"prometheus", prometheus},
      {"recorded", recorded},
      {"scheduler", scheduler},
      {"skipped", skipped},
      {"sqlite", sqlite},
      {"tensorboard", tensorboard},
      {"warnings", warnings},
      {"workers", workers},
  };
  return all;
}

}  // namespace

int run_program(int argc, char** argv) {
  if (argc == 2 && argv[1] == std::string("list")) {
    for (const auto& [name, function] : kinds()) std::printf("%s\n", name.c_str());
    return 0;
  }
  if (argc < 4 || !kinds().contains(argv[1])) {
    std::fprintf(stderr, "endurance_program KIND STEPS SAMPLES_FILE [PLANT]\n");
    return 2;
  }
  Case run(std::stoll(argv[2]), argc > 4 ? argv[4] : "");
  kinds().at(argv[1])(run);
  run.usage.write(argv[3]);
  return 0;
}

}  // namespace endurance_program
