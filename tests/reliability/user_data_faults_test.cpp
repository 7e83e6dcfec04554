// Data that a run cannot use: empty, ragged, endless, with a size that lies; ten thousand metric names;
// numbers that are not finite where no other test looks; memory that ends inside a step.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>

#include "levin/levin.h"
#include "levin/trainer/nonfinite_loss_error.h"
#include "levin/trainer/step/out_of_memory.h"
#include "reliability/odd_data.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/limited_allocator.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"
#include "support/unsized_loader.h"

namespace levin::user_data_faults_test {
namespace {

using namespace levin::test;

// ---- empty ----------------------------------------------------------------------------------------------------------

// Reliability: empty_loader.
TEST(EmptyData, OfALoaderWithoutBatchesAreAnErrorOfFit) {
  TinyModule module;
  EXPECT_TRUE(holds(error_of<ConfigError>([&] { Trainer(quiet()).fit(module, batches(0, 0)); }),
                    {"the training loader has no batches", "Check the data set's size"}));
}

// Reliability: empty_stream.
TEST(EmptyData, OfAStreamAreReportedAndTheRunEnds) {
  TinyModule module;
  const CapturedConsole console;
  Trainer trainer(quiet());
  trainer.fit(module, batches(0, std::nullopt));
  EXPECT_EQ(trainer.global_step(), 0);
  EXPECT_TRUE(console.has("warning: the training loader has ended before its first batch")) << console.text();
  EXPECT_EQ(console.lines().size(), 1u) << console.text();  // once, not in each epoch
}

// Reliability: empty_loader.
TEST(EmptyData, OfAnEvaluationGiveNoMetricsAndAWarning) {
  for (const std::optional<int64_t> claimed : {std::optional<int64_t>(0), std::optional<int64_t>()}) {
    TinyModule module;
    Trainer trainer(quiet(1));
    const CapturedConsole console;
    trainer.fit(module, batches(3, 3), batches(0, claimed));
    EXPECT_EQ(trainer.global_step(), 3);
    EXPECT_FALSE(trainer.callback_metrics().contains("val_loss"));
    EXPECT_TRUE(trainer.validate(module, batches(0, claimed)).at(0).empty());
    EXPECT_TRUE(trainer.test(module, batches(0, claimed)).at(0).empty());
    EXPECT_TRUE(trainer.predict(module, batches(0, claimed)).at(0).empty());
    for (const char* stage : {"validate", "test", "predict"})
      EXPECT_TRUE(console.has(std::string("warning: ") + stage + ": loader 0 has no batches")) << console.text();
  }
}

// Reliability: empty_batch.
TEST(EmptyData, OfABatchWithoutRowsStopTheRunAtItsBatch) {
  TinyModule module;
  const std::string error =
      error_of<NonFiniteLossError>([&] { Trainer(quiet()).fit(module, with_odd_batch([] { return good_batch(0); })); });
  EXPECT_TRUE(holds(error, {"training_step: the loss is nan in epoch 0, batch 2, global step 2"}));
}

// ---- endless --------------------------------------------------------------------------------------------------------

constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();

// Reliability: endless.
TEST(EndlessData, EndAtEachLimitOfARun) {
  const auto run = [](const std::function<void(TrainerOptions&)>& limit) {
    TinyModule module;
    TrainerOptions options = quiet(1);
    limit(options);
    Trainer trainer(options);
    trainer.fit(module, batches(kEndless, std::nullopt));
    return trainer.global_step();
  };
  EXPECT_EQ(run([](auto& o) { o.limit_train_batches = int64_t{7}; }), 7);
  EXPECT_EQ(run([](auto& o) { o.max_steps = 7; }), 7);
  EXPECT_GT(run([](auto& o) { o.max_time = std::chrono::milliseconds(50); }), 0);
}

TEST(EndlessData, AShareOfThemIsAnErrorThatNamesTheOption) {
  TinyModule module;
  TrainerOptions options = quiet(1);
  options.limit_train_batches = 0.5;
  EXPECT_TRUE(holds(error_of<ConfigError>([&] { Trainer(options).fit(module, batches(kEndless, std::nullopt)); }),
                    {"limit_train_batches"}));
}

// Reliability: endless.
TEST(EndlessData, OfAValidationEndAtItsLimitOrAtASignal) {
  TinyModule module;
  TrainerOptions options = quiet(1);
  options.limit_val_batches = int64_t{5};
  Trainer(options).fit(module, batches(3, 3), batches(kEndless, std::nullopt));
  struct Signals : TinyModule {
    void validation_step(const Batch&, int64_t batch_idx) override {
      if (batch_idx == 100) std::raise(SIGTERM);
    }
  } signals;
  options.limit_val_batches = std::nullopt;
  Trainer trainer(options);
  EXPECT_THROW((void)trainer.validate(signals, batches(kEndless, std::nullopt)), Interrupted);
}

// ---- sizes that lie -------------------------------------------------------------------------------------------------

// Reliability: short_loader.
TEST(SizesThatLie, ALoaderWithFewerBatchesThanItClaimsEndsItsEpochEarlyWithAWarning) {
  TinyModule module;
  TrainerOptions options = quiet(2);
  options.accumulate_grad_batches = 2;
  Trainer trainer(options);
  const CapturedConsole console;
  trainer.fit(module, batches(3, 6), batches(1, 4));
  EXPECT_EQ(trainer.current_epoch(), 2);
  EXPECT_EQ(trainer.seen_batches(), 6);
  EXPECT_EQ(trainer.global_step(), 4);
  EXPECT_TRUE(
      console.has("warning: the training loader has ended after 3 batches of the 6 that its num_batches() "
                  "returned"))
      << console.text();
}

// Reliability: long_loader.
TEST(SizesThatLie, OfALoaderWithMoreBatchesThanItClaimsTheRestIsNotUsed) {
  TinyModule module;
  Trainer trainer(quiet(2));
  trainer.fit(module, batches(9, 3));
  EXPECT_EQ(trainer.global_step(), 6);
}

// Reliability: false_size.
TEST(SizesThatLie, ADataSetThatClaimsTooManySamplesNamesTheOneThatItDoesNotHave) {
  for (const int64_t workers : {0, 2}) {
    TinyModule module;
    const auto data = std::make_shared<Samples>([] { return 12; });
    EXPECT_TRUE(holds(error_of<DataError>([&] {
                        Trainer(quiet()).fit(module, DataLoader(data, {.batch_size = 4, .num_workers = workers}));
                      }),
                      {"DataLoader: sample 8 (batch 2 of epoch 0): there is no row 8"}));
  }
}

// Reliability: changed_size.
TEST(SizesThatLie, ADataSetThatShrinksOrGrowsWithinARunIsReported) {
  for (const int64_t later : {4, 16}) {
    for (const bool shuffles : {false, true}) {
      TinyModule module;
      int64_t now = 8;
      module.on_training_step = [&](int64_t) { now = later; };
      const auto data = std::make_shared<Samples>([&] { return now; });
      const std::string error = error_of<DataError>(
          [&] { Trainer(quiet(2)).fit(module, DataLoader(data, {.batch_size = 4, .shuffle = shuffles})); });
      if (later == 16) {
        EXPECT_EQ(error, "");  // what is new is not used
      } else {
        EXPECT_TRUE(holds(error, {"DataLoader: the sampler ", "the data set holds 4", "make a new loader"}));
      }
    }
  }
}

// Reliability: negative_size.
TEST(SizesThatLie, ANegativeSizeIsRefusedByNameOfTheDataSet) {
  EXPECT_TRUE(holds(error_of<DataError>([] { DataLoader(std::make_shared<Samples>([] { return -1; })); }),
                    {"size() of the data set", "Samples is -1", "Return the number of samples"}));
}

// Reliability: negative_batches.
TEST(SizesThatLie, ALoaderThatClaimsANegativeNumberOfBatchesIsRefused) {
  TinyModule module;
  EXPECT_TRUE(
      holds(error_of<ConfigError>([&] { Trainer(quiet()).fit(module, batches(3, -1)); }), {"-1", "num_batches"}));
  EXPECT_TRUE(holds(error_of<ConfigError>([&] { (void)Trainer(quiet()).validate(module, batches(3, -1)); }),
                    {"-1", "num_batches"}));
}

// ---- odd batches ----------------------------------------------------------------------------------------------------

std::string error_with(const std::function<Batch()>& odd, bool records = false) {
  TinyModule module;
  TrainerOptions options = quiet();
  options.record_steps = records;
  Trainer trainer(options);
  std::string error = error_of([&] { trainer.fit(module, with_odd_batch(odd)); });
  Trainer next(quiet(1));
  next.fit(module, batches(2, 2));  // the module can be used again
  EXPECT_EQ(next.global_step(), 2);
  return error;
}

// Reliability: odd_batch.
TEST(OddBatches, NameTheirPositionAndWhatTheyAre) {
  for (const bool records : {false, true}) {
    SCOPED_TRACE(records);
    EXPECT_TRUE(holds(error_with(
                          [] {
                            return Batch{torch::ones({4, 4})};
                          },
                          records),
                      {"training_step, epoch 0, batch 2, global step 2", "the batch holds 1"}));
    EXPECT_TRUE(holds(error_with(
                          [] {
                            return Batch{torch::ones({4, 4}), at::Tensor()};
                          },
                          records),
                      {"transfer_batch_to_device, epoch 0, batch 2, global step 2",
                       "tensor 1 of the 2 tensors of the batch is undefined"}));
    EXPECT_TRUE(
        holds(error_with([] { return Batch(); }, records), {"epoch 0, batch 2, global step 2", "the batch holds 0"}));
    EXPECT_TRUE(holds(error_with(
                          [] {
                            return Batch{{"x", torch::ones({4, 4})}, {"y", torch::ones({4, 1})}};
                          },
                          records),
                      {}));
    EXPECT_TRUE(holds(error_with(
                          [] {
                            return Batch{torch::ones({4, 3}), torch::ones({4, 1})};
                          },
                          records),
                      {"training_step, epoch 0, batch 2, global step 2", "(the batch: (4, 3) Float, (4, 1) Float)"}));
    EXPECT_TRUE(holds(error_with(
                          [] {
                            return Batch{torch::ones({4, 4}, at::kLong), torch::ones({4, 1})};
                          },
                          records),
                      {"training_step, epoch 0, batch 2, global step 2", "TrainerOptions.precision"}));
  }
}

// Reliability: undefined_sample.
TEST(OddBatches, ASampleWithAnUndefinedTensorIsNamed) {
  struct Undefined : Dataset {
    [[nodiscard]] int64_t size() const override { return 8; }
    [[nodiscard]] Batch get(int64_t index) const override {
      return {torch::ones({4}), index == 5 ? at::Tensor() : torch::ones({1})};
    }
  };
  for (const int64_t workers : {0, 2}) {
    TinyModule module;
    EXPECT_TRUE(holds(error_of<DataError>([&] {
                        Trainer(quiet()).fit(module, DataLoader(std::make_shared<Undefined>(),
                                                                {.batch_size = 4, .num_workers = workers}));
                      }),
                      {"sample 5", "batch 1 of epoch 0", "undefined"}));
  }
}

// ---- numbers that are not finite ------------------------------------------------------------------------------------

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

// Reliability: nonfinite_input.
TEST(NonFiniteNumbers, OfInputsAndWeightsAreReportedAsALossBeforeTheUpdate) {
  for (const std::string precision : {"32-true", "float16", "bf16-mixed"}) {
    for (const double value : {kNan, kInf}) {
      SCOPED_TRACE(precision + " " + std::to_string(value));
      TinyModule module;
      TrainerOptions options = quiet();
      options.precision = precision;
      if (precision == "float16")  // as 16-mixed on a GPU
        options.precision =
            MixedPrecision({.dtype = MixedDtype::float16, .scaler = GradScalerOptions{.init_scale = 4}});
      const auto bad = [&] { return Batch{torch::full({4, 4}, value), torch::ones({4, 1})}; };
      EXPECT_TRUE(holds(error_of<NonFiniteLossError>([&] { Trainer(options).fit(module, with_odd_batch(bad)); }),
                        {"the loss is ", "in epoch 0, batch 2, global step ", "Nothing was updated with it"}));
      EXPECT_TRUE(module.layer->weight.isfinite().all().item<bool>());
      {
        const at::NoGradGuard no_grad;
        module.layer->weight.fill_(value);
      }
      EXPECT_TRUE(holds(error_of<NonFiniteLossError>([&] { Trainer(options).fit(module, batches(4, 4)); }),
                        {"the loss is ", "in epoch 0, batch 0, global step 0"}));
    }
  }
}

// Reliability: nonfinite_metric.
TEST(NonFiniteNumbers, OfAMonitoredMetricAreHandledByEachCallbackThatFollowsIt) {
  for (const double value : {kNan, kInf, -kInf}) {
    SCOPED_TRACE(value);
    const TemporaryFolder folder;
    TinyModule module;
    module.table = {0.5, value, 0.25, 0.125};
    module.make_optimizers = [](TinyModule& m) -> OptimizerConfig {
      return {SGD(m.parameters(), {.lr = 0.1}), ReduceLROnPlateau({.factor = 0.5, .patience = 0}), {.monitor = "v"}};
    };
    TrainerOptions options = quiet(4);
    options.default_root_dir = folder.path();
    options.logger = {CSVLogger({.save_dir = folder.path()}), JSONLinesLogger({.save_dir = folder.path()}),
                      TensorBoardLogger({.save_dir = folder.path()}), SQLiteLogger({.path = folder / "runs.db"})};
    options.enable_checkpointing = true;
    options.callbacks = {EarlyStopping({.monitor = "v", .patience = 4, .check_finite = false}),
                         ModelCheckpoint({.filename = "best", .monitor = "v"})};
    Trainer trainer(options);
    trainer.fit(module, tiny_loader(8), tiny_loader(4));
    EXPECT_EQ(trainer.current_epoch(), 4);
    const auto best = trainer.callback<ModelCheckpoint>();
    // PyTorch compares with <: nan and inf are no improvement, -inf is one that nothing can better.
    EXPECT_EQ(best->best_model_score(), value == -kInf ? value : 0.125);
    TinyModule other;
    other.table = module.table;
    other.make_optimizers = module.make_optimizers;
    Trainer resumed(options);
    resumed.fit(other, tiny_loader(8), tiny_loader(4), best->best_model_path());
    EXPECT_TRUE(torch::equal(other.layer->weight, module.layer->weight));
  }
}

// Reliability: nonfinite_metric.
TEST(NonFiniteNumbers, OfALoggedMetricDoNotStopTheRun) {
  struct Logs : TinyModule {
    at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
      for (const char* name : {"nan", "inf", "-inf"}) log(name, std::strtod(name, nullptr), {.prog_bar = true});
      return TinyModule::training_step(batch, batch_idx);
    }
  } module;
  const TemporaryFolder folder;
  TrainerOptions options = quiet();
  options.log_every_n_steps = 1;
  options.default_root_dir = folder.path();
  options.enable_progress_bar = true;
  options.logger = {CSVLogger({.save_dir = folder.path()}), JSONLinesLogger({.save_dir = folder.path()}),
                    TensorBoardLogger({.save_dir = folder.path()}), SQLiteLogger({.path = folder / "runs.db"})};
  const CapturedConsole console;
  Trainer trainer(options);
  trainer.fit(module, tiny_loader(8));
  EXPECT_EQ(trainer.global_step(), 4);
  EXPECT_TRUE(std::isnan(trainer.callback_metrics().at("nan")));
  EXPECT_EQ(trainer.callback_metrics().at("-inf"), -kInf);
}

// ---- many names -----------------------------------------------------------------------------------------------------

double cpu_seconds() {
  timespec now = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Names : TinyModule {
  explicit Names(int64_t how_many, bool one_by_one_too) : count(how_many), one_by_one(one_by_one_too) {}
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
    for (int64_t k = 0; k < count; ++k) {
      if (!one_by_one || k == seen) log("metric/" + std::to_string(k), static_cast<double>(k), {.prog_bar = true});
    }
    ++seen;
    return TinyModule::training_step(batch, batch_idx);
  }
  int64_t count;
  bool one_by_one;  // each step has one name that is new
  int64_t seen = 0;
};

// Returns the seconds of processors' time.
double train_with_names(int64_t names, const std::function<LoggerChoice(const std::string&)>& loggers) {
  const TemporaryFolder folder;
  Names module(names, false);
  TrainerOptions options = quiet(1);
  options.default_root_dir = folder.path();
  options.log_every_n_steps = 1;
  options.enable_progress_bar = true;
  options.enable_checkpointing = true;
  options.logger = loggers(folder.path());
  const CapturedConsole console;
  const double start = cpu_seconds();
  {
    Trainer trainer(options);
    trainer.fit(module, tiny_loader(12), tiny_loader(4));
    EXPECT_EQ(trainer.callback_metrics().at("metric/" + std::to_string(names - 1)), static_cast<double>(names - 1));
  }
  return cpu_seconds() - start;
}

// Reliability: many_names.
TEST(TenThousandNames, TakeTenTimesTheTimeOfAThousandInEveryLogger) {
  const std::map<std::string, std::function<LoggerChoice(const std::string&)>> all{
      {"none", [](const std::string&) { return LoggerChoice(false); }},
      {"csv", [](const std::string& f) { return LoggerChoice(CSVLogger({.save_dir = f})); }},
      {"json_lines", [](const std::string& f) { return LoggerChoice(JSONLinesLogger({.save_dir = f})); }},
      {"tensorboard", [](const std::string& f) { return LoggerChoice(TensorBoardLogger({.save_dir = f})); }},
      {"sqlite", [](const std::string& f) { return LoggerChoice(SQLiteLogger({.path = f + "/runs.db"})); }},
      {"prometheus",
       [](const std::string& f) { return LoggerChoice(PrometheusLogger({.path = f + "/metrics.prom"})); }}};
  for (const auto& [name, loggers] : all) {
    SCOPED_TRACE(name);
    const double thousand = train_with_names(1000, loggers), ten_thousand = train_with_names(10000, loggers);
    EXPECT_LT(ten_thousand, 30 * std::max(thousand, 0.02));  // squared, it would be 100 times
  }
}

// Reliability: odd_names.
TEST(OddNames, ReachEveryLoggerOrAreRefusedByLog) {
  const std::vector<std::string> taken{"a,b",
                                       "a\"b",
                                       "a'b",
                                       "a b",
                                       "ä ö 日本",
                                       "a/b/c",
                                       "../../a",
                                       "{}[]#%$&;|",
                                       "a\\b",
                                       "-a=1",
                                       std::string(1000, 'x')};
  struct Odd : TinyModule {
    explicit Odd(const std::vector<std::string>& all) : names(all) {}
    at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
      for (const auto& name : names) log(name, 1.5, {.prog_bar = true});
      return TinyModule::training_step(batch, batch_idx);
    }
    std::vector<std::string> names;
  };
  const TemporaryFolder folder;
  TrainerOptions options = quiet(1);
  options.log_every_n_steps = 1;
  options.default_root_dir = folder.path();
  options.enable_progress_bar = true;
  options.logger = {CSVLogger({.save_dir = folder.path()}), JSONLinesLogger({.save_dir = folder.path()}),
                    TensorBoardLogger({.save_dir = folder.path()}), SQLiteLogger({.path = folder / "runs.db"}),
                    PrometheusLogger({.path = folder / "metrics.prom"})};
  Odd module(taken);
  {
    const CapturedConsole console;
    Trainer trainer(options);
    trainer.fit(module, tiny_loader(12), tiny_loader(4));
    for (const auto& name : taken) EXPECT_EQ(trainer.callback_metrics().at(name), 1.5) << name;
  }
  for (const std::string& refused :
       {std::string(), std::string("a\nb"), std::string("a\0b", 3), std::string("epoch"), std::string("step")}) {
    Odd bad({refused});
    EXPECT_TRUE(holds(error_of<Error>([&] { Trainer(quiet()).fit(bad, tiny_loader(8)); }),
                      {"training_step, epoch 0, batch 0, global step 0", "log("}));
  }
}

// ---- memory that ends -----------------------------------------------------------------------------------------------

/// Lets no CPU tensor be allocated from `phase` of step 4 on, until the test lifts that; `step` is inside of
/// training_step, which replicas call on their threads.
struct NoMemory : Callback {
  explicit NoMemory(std::string where) : phase(std::move(where)) {}
  void on_train_batch_start(Trainer& t, LightningModule&, const Batch&, int64_t) override {
    at(t, "forward");
    ends_in_step = phase == "step" && t.global_step() >= 4;
  }
  void on_before_backward(Trainer& t, LightningModule&, const at::Tensor&) override { at(t, "backward"); }
  void on_before_optimizer_step(Trainer& t, LightningModule&, Optimizer&) override { at(t, "optimizer"); }
  void on_train_batch_end(Trainer& t, LightningModule&, const at::Tensor&, const Batch&, int64_t) override {
    at(t, "logging");
  }
  void on_save_checkpoint(Trainer& t, LightningModule&, State&) override { at(t, "save"); }
  void on_validation_batch_start(Trainer& t, LightningModule&, const Batch&, int64_t, int64_t) override {
    at(t, "validation");
  }
  void at(Trainer& trainer, const std::string& where) {
    if (where == phase && trainer.global_step() >= 4) end_memory();
  }
  void end_memory() const {
    if (memory != nullptr) LimitedAllocator::instance().limit = LimitedAllocator::instance().held();
  }
  std::string phase;
  bool ends_in_step = false;
  MemoryLimit* memory = nullptr;
};

struct AdamModule : TinyModule {
  explicit AdamModule(std::shared_ptr<NoMemory> end = nullptr) : ends(std::move(end)) {}
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>&) const override {
    return std::make_shared<AdamModule>(ends);
  }
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
    if (ends != nullptr && ends->ends_in_step) ends->end_memory();
    return TinyModule::training_step(batch, batch_idx);
  }
  OptimizerConfig configure_optimizers() override {
    return {Adam(parameters(), {.lr = 0.01}), StepLR({.step_size = 1, .gamma = 0.9})};
  }
  std::shared_ptr<NoMemory> ends;
};

// Returns what a run that has no memory from `phase` on throws and prints; it is continued to the weights of an
// undisturbed run.
std::string without_memory(const std::string& strategy, const std::string& phase) {
  const TemporaryFolder folder, elsewhere;
  const auto options = [&](const std::shared_ptr<NoMemory>& ends, const std::string& path) {
    TrainerOptions all = quiet(3);
    all.default_root_dir = path;
    all.log_every_n_steps = 1;
    all.logger = CSVLogger({.save_dir = path});
    all.enable_checkpointing = true;
    all.auto_resume = true;
    all.strategy = strategy;
    all.devices = strategy == "single_device" ? 1 : 2;
    all.callbacks = {ends, ModelCheckpoint({.dirpath = path + "/ckpt", .every_n_train_steps = 1})};
    return all;
  };
  AdamModule whole;
  Trainer(options(std::make_shared<NoMemory>("none"), elsewhere.path())).fit(whole, tiny_loader(12), tiny_loader(4));
  const auto ends = std::make_shared<NoMemory>(phase);
  AdamModule module(ends);
  std::string error, printed;
  {
    const CapturedConsole console;
    Trainer trainer(options(ends, folder.path()));
    {
      MemoryLimit memory;
      ends->memory = &memory;
      error = error_of([&] { trainer.fit(module, tiny_loader(12), tiny_loader(4)); });
      ends->memory = nullptr;
    }
    printed = console.text();
  }
  AdamModule resumed;
  Trainer again(options(std::make_shared<NoMemory>("none"), folder.path()));
  again.fit(resumed, tiny_loader(12), tiny_loader(4));
  EXPECT_TRUE(torch::equal(resumed.layer->weight, whole.layer->weight));
  return error + printed;
}

// Reliability: no_memory.
TEST(NoMemory, InAnyPhaseOfAStepIsAnErrorThatNamesTheSizeAndTheRemedy) {
  for (const std::string phase : {"forward", "step", "backward", "optimizer", "logging", "save", "validation"}) {
    SCOPED_TRACE(phase);
    EXPECT_TRUE(holds(without_memory("single_device", phase), {"out of memory", "bytes"}));
  }
}

// Reliability: no_memory.
TEST(NoMemory, OfAReplicaIsTheSameErrorAndNamesTheReplica) {
  for (const std::string strategy : {"dp", "dp_balanced"}) {
    for (const std::string phase : {"forward", "step", "backward", "validation"}) {
      SCOPED_TRACE(strategy + " " + phase);
      const std::string text = without_memory(strategy, phase);
      EXPECT_TRUE(holds(text, {"out of memory", "bytes", "Largest users"}));
      if (phase == "step") {
        EXPECT_TRUE(has(text, "replica 0 of 2 on cpu:0: DefaultCPUAllocator: can't allocate memory")) << text;
      }
    }
  }
}

}  // namespace
}  // namespace levin::user_data_faults_test
