// What the entry points return, what they leave behind, and what they say when something is missing or fails.
#include "levin/trainer/trainer.h"

#include <ATen/Context.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <fstream>
#include <sstream>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/loggers/csv_logger.h"
#include "levin/optim/sgd.h"
#include "levin/optim/step_schedulers.h"
#include "support/captured_console.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::trainer_test {
namespace {

using namespace test;

// ---- evaluation -----------------------------------------------------------------------------------------------------

/// Logs the mean of its inputs, so that every result is known.
struct MeanModule : TinyModule {
  void validation_step(const Batch& batch, int64_t) override {
    log("mean", batch[0].mean());
    log("loader", static_cast<double>(dataloader_idx()), {.add_dataloader_idx = false});
  }
  void test_step(const Batch& batch, int64_t) override { log("mean", batch[0].mean()); }
  at::Tensor predict_step(const Batch& batch, int64_t) override { return batch[0].sum(1); }
};

Loaders constant_loaders(const std::vector<double>& values, int64_t samples = 5, int64_t batch_size = 2) {
  Loaders loaders;
  for (const double value : values) {
    loaders.push_back(
        std::make_shared<TensorLoader>(std::vector<at::Tensor>{torch::full({samples, 4}, value)}, batch_size));
  }
  return loaders;
}

TEST(Trainer, ValidateReturnsOneMapPerLoader) {
  MeanModule module;
  Trainer trainer(quiet(1, {}));
  const std::vector<Metrics> one = trainer.validate(module, constant_loaders({0.5}));
  EXPECT_EQ(one, (std::vector<Metrics>{{{"loader", 0.0}, {"mean", 0.5}}}));
  const std::vector<Metrics> two = trainer.validate(module, constant_loaders({0.25, 0.75}));
  EXPECT_EQ(two, (std::vector<Metrics>{{{"loader", 0.0}, {"mean/dataloader_idx_0", 0.25}},
                                       {{"loader", 1.0}, {"mean/dataloader_idx_1", 0.75}}}));
  EXPECT_EQ(trainer.callback_metrics().at("mean/dataloader_idx_1"), 0.75);
}

TEST(Trainer, TestReturnsItsMetricsAndKeepsThem) {
  MeanModule module;
  Trainer trainer(quiet(1, {}));
  EXPECT_EQ(trainer.test(module, constant_loaders({2.0})), (std::vector<Metrics>{{{"mean", 2.0}}}));
  EXPECT_EQ(trainer.callback_metrics(), (Metrics{{"mean", 2.0}}));
  EXPECT_EQ(trainer.stage(), Stage::test);
}

TEST(Trainer, PredictReturnsEachBatchOfEachLoader) {
  MeanModule module;
  const Predictions predictions = Trainer(quiet(1, {})).predict(module, constant_loaders({1.0, 2.0}));
  ASSERT_EQ(predictions.size(), 2U);
  ASSERT_EQ(predictions[0].size(), 3U);  // 5 samples by 2
  EXPECT_TRUE(predictions[0][0].equal(torch::full({2}, 4.0)));
  EXPECT_TRUE(predictions[1][2].equal(torch::full({1}, 8.0)));
  const Predictions forwarded = [] {
    TinyModule plain;
    return Trainer(quiet(1, {})).predict(plain, tiny_loader(4));
  }();
  EXPECT_EQ(forwarded[0][0].sizes(), (std::vector<int64_t>{4, 1}));
}

TEST(Trainer, EvaluationHonoursItsLimit) {
  MeanModule module;
  TrainerOptions options = quiet(1, {});
  options.limit_predict_batches = BatchLimit(0.5);
  options.limit_test_batches = int64_t{0};
  Trainer trainer(options);
  EXPECT_EQ(trainer.predict(module, constant_loaders({1.0}, 10, 2))[0].size(), 2U);
  EXPECT_TRUE(trainer.test(module, constant_loaders({1.0})).empty());
}

struct ModeModule : TinyModule {
  void note() {
    inference.push_back(c10::InferenceMode::is_enabled());
    gradients.push_back(at::GradMode::is_enabled());
  }
  void validation_step(const Batch&, int64_t) override { note(); }
  void test_step(const Batch&, int64_t) override { note(); }
  std::vector<bool> inference = {}, gradients = {};
};

TEST(Trainer, TestsInInferenceModeAndValidatesInsideFitWithoutIt) {
  using Flags = std::vector<bool>;
  TrainerOptions options = quiet(1, {});
  ModeModule tested;
  Trainer(options).test(tested, tiny_loader(4));
  EXPECT_EQ(tested.inference, Flags{true});
  EXPECT_EQ(tested.gradients, Flags{false});
  EXPECT_TRUE(at::GradMode::is_enabled());

  ModeModule fitted;
  options.num_sanity_val_steps = 0;
  Trainer(options).fit(fitted, tiny_loader(4), tiny_loader(4));
  EXPECT_EQ(fitted.inference, Flags{false});
  EXPECT_EQ(fitted.gradients, Flags{false});

  ModeModule plain;
  options.inference_mode = false;
  Trainer(options).test(plain, tiny_loader(4));
  EXPECT_EQ(plain.inference, Flags{false});
  EXPECT_EQ(plain.gradients, Flags{false});
}

// ---- what a run leaves behind ---------------------------------------------------------------------------------------

TEST(Trainer, FastDevRunWritesNothing) {
  const CapturedConsole console;
  const TemporaryFolder folder;
  int validated = 0;
  LambdaCallback count(
      {.on_validation_batch_end = [&](Trainer&, LightningModule&, const Batch&, int64_t, int64_t) { ++validated; }});
  TinyModule module;
  TrainerOptions options;
  options.fast_dev_run = int64_t{2};
  options.callbacks = count;
  options.default_root_dir = folder.path();
  Trainer trainer(options);
  trainer.fit(module, tiny_loader(24), tiny_loader(24));
  EXPECT_EQ(trainer.global_step(), 2);
  EXPECT_EQ(trainer.current_epoch(), 1);
  EXPECT_EQ(validated, 2);
  EXPECT_TRUE(folder.names().empty()) << ::testing::PrintToString(folder.names());
}

TEST(Trainer, BarebonesLogsAndWritesNothing) {
  const CapturedConsole console;
  const TemporaryFolder folder;
  TinyModule module;
  TrainerOptions options;
  options.max_epochs = 2;
  options.barebones = true;
  options.default_root_dir = folder.path();
  Trainer trainer(options);
  trainer.fit(module, tiny_loader(24), tiny_loader(8));
  EXPECT_EQ(trainer.global_step(), 12);
  EXPECT_TRUE(trainer.callback_metrics().empty());
  EXPECT_TRUE(trainer.logged_metrics().empty());
  EXPECT_TRUE(folder.names().empty()) << ::testing::PrintToString(folder.names());
  EXPECT_EQ(console.text(), "");
}

TEST(Trainer, HyperparametersLandBesideTheMetrics) {
  const TemporaryFolder folder;
  TinyModule module;
  module.save_hyperparameters(SGDOptions{.lr = 0.25, .nesterov = true});
  TrainerOptions options = quiet(1, {}, folder.path());
  options.logger = CsvLogger();
  Trainer trainer(options);
  trainer.fit(module, tiny_loader(4));
  std::ifstream file(trainer.log_dir() + "/hparams.yaml");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(has(text.str(), "lr: 0.25")) << text.str();
  EXPECT_TRUE(has(text.str(), "nesterov: true")) << text.str();
  EXPECT_TRUE(has(trainer.log_dir(), folder.path()));
}

TEST(Trainer, AnOptimizerOverrideTakesThePlaceOfTheModules) {
  TinyModule module;
  module.make_optimizers = [](TinyModule&) -> OptimizerConfig { throw Error("not to be asked"); };
  module.set_optimizer_override([](LightningModule& m) { return SGD(m.parameters(), {.lr = 0.5}); });
  Trainer trainer(quiet(1, {}));
  trainer.fit(module, tiny_loader(4));
  EXPECT_EQ(trainer.optimizers().at(0).optimizer().groups()[0].lr, 0.5);
}

// ---- callbacks ------------------------------------------------------------------------------------------------------

struct Tagged : Callback {
  explicit Tagged(int which, std::string state = "") : tag(which), key(std::move(state)) {}
  [[nodiscard]] std::string state_key() const override { return key; }
  int tag;
  std::string key;
};
struct OtherTagged : Tagged {
  using Tagged::Tagged;
};
struct WithCallbacks : TinyModule {
  Callbacks configure_callbacks() override { return {Tagged(2, "tagged")}; }
};

TEST(Trainer, TheModulesCallbacksReplaceThoseOfTheSameClass) {
  WithCallbacks module;
  Trainer trainer(quiet(1, {Tagged(1, "tagged"), OtherTagged(3)}));
  trainer.fit(module, tiny_loader(4));
  std::vector<int> tags;
  for (const auto& callback : trainer.callbacks()) tags.push_back(dynamic_cast<Tagged&>(*callback).tag);
  EXPECT_EQ(tags, (std::vector<int>{3, 2}));
  EXPECT_EQ(trainer.callback<Tagged>()->tag, 3);
  TinyModule plain;
  trainer.fit(plain, tiny_loader(4));  // the next module gets the trainer's own again
  EXPECT_EQ(trainer.callback<Tagged>()->tag, 1);
}

TEST(Trainer, RefusesTwoCallbacksWithTheSameState) {
  TinyModule module;
  const std::string error = error_of([&] {
    Trainer(quiet(1, {Tagged(1, "mine"), OtherTagged(2, "mine")})).fit(module, tiny_loader(4));
  });
  EXPECT_TRUE(has(error, "TrainerOptions.callbacks: two callbacks keep their state as \"mine\"")) << error;
}

TEST(Trainer, RefusesACheckpointCallbackWithCheckpointingOff) {
  struct Saves : Callback {
    [[nodiscard]] bool is_checkpoint() const override { return true; }
  };
  TrainerOptions options = quiet(1, {Saves()});
  options.enable_checkpointing = false;
  const std::string error = error_of([&] { Trainer trainer(options); });
  EXPECT_TRUE(has(error, "TrainerOptions.enable_checkpointing: false, but a checkpoint callback was given")) << error;
}

// ---- what is missing ------------------------------------------------------------------------------------------------

struct Bare : LightningModule {
  OptimizerConfig configure_optimizers() override { return SGD({weight}, {.lr = 0.1}); }
  at::Tensor weight{register_parameter("weight", torch::zeros(1))};
};

TEST(Trainer, NamesTheStepToOverride) {
  Bare module;
  Trainer trainer(quiet(1, {}));
  EXPECT_TRUE(has(error_of([&] { trainer.fit(module, tiny_loader(4)); }), "fit needs training_step: override it"));
  EXPECT_TRUE(has(error_of([&] { trainer.validate(module, tiny_loader(4)); }), "validation needs validation_step"));
  EXPECT_TRUE(has(error_of([&] { trainer.test(module, tiny_loader(4)); }), "test needs test_step"));
  EXPECT_TRUE(has(error_of([&] { trainer.predict(module, tiny_loader(4)); }), "needs forward or predict_step"));
}

TEST(Trainer, NamesTheLoaderToOverride) {
  TinyModule module;
  DataModule none;
  Trainer trainer(quiet(1, {}));
  EXPECT_TRUE(has(error_of([&] { trainer.fit(module, none); }), "Override train_dataloader()"));
  EXPECT_TRUE(has(error_of([&] { trainer.fit(module); }), "Override train_dataloader()"));
  EXPECT_TRUE(has(error_of([&] { trainer.validate(module, none); }), "Override val_dataloader()"));
  EXPECT_TRUE(has(error_of([&] { trainer.test(module, none); }), "Override test_dataloader()"));
  EXPECT_TRUE(has(error_of([&] { trainer.predict(module, none); }), "Override predict_dataloader()"));
  const auto empty = std::make_shared<TensorLoader>(std::vector<at::Tensor>{torch::zeros({0, 4})}, 2);
  EXPECT_TRUE(has(error_of([&] { trainer.fit(module, empty); }), "the training loader has no batches"));
}

TEST(Trainer, SaysWhatNeedsATrainer) {
  TinyModule module;
  EXPECT_TRUE(has(error_of([&] { (void)module.trainer(); }), "the module is not attached to a Trainer"));
  EXPECT_EQ(module.current_epoch(), 0);
  module.log("x", 1.0);  // without a trainer a step may still be called by hand
  Trainer trainer(quiet(1, {}));
  EXPECT_TRUE(has(error_of([&] { trainer.save_checkpoint("nowhere"); }), "there is no module yet"));
}

TEST(Trainer, RefusesToLogWhereNothingCanBe) {
  struct Logs : TinyModule {
    void on_fit_start() override { log("early", 1.0); }
  } module;
  const std::string error = error_of([&] { Trainer(quiet(1, {})).fit(module, tiny_loader(4)); });
  EXPECT_TRUE(has(error, "log(\"early\") in on_fit_start: nothing can be logged there")) << error;
}

// ---- failures -------------------------------------------------------------------------------------------------------

/// Counts what a failure must call once.
struct Failing : TinyModule {
  void on_exception(const std::exception& error) override { told.emplace_back(error.what()); }
  void teardown(Stage) override { ++torn_down; }
  std::vector<std::string> told = {};
  int torn_down = 0;
};

TEST(Trainer, AFailureIsToldOnceAndTheRunIsTornDown) {
  struct Data : DataModule {
    std::shared_ptr<Loader> train_dataloader() override { return tiny_loader(24); }
    void on_exception(const std::exception&) override { ++told; }
    void teardown(Stage) override { ++torn_down; }
    int told = 0, torn_down = 0;
  } data;
  int told = 0, torn_down = 0;
  LambdaCallback watch({.teardown = [&](Trainer&, LightningModule&, Stage) { ++torn_down; },
                        .on_exception = [&](Trainer&, LightningModule&, const std::exception&) { ++told; }});
  Failing module;
  module.on_training_step = [](int64_t batch_idx) {
    if (batch_idx == 2) throw std::out_of_range("the user's own");
  };
  Trainer trainer(quiet(1, watch));
  EXPECT_THROW(trainer.fit(module, data), std::out_of_range);  // the type is kept
  EXPECT_EQ(module.told, std::vector<std::string>{"the user's own"});
  EXPECT_EQ(module.torn_down, 1);
  EXPECT_EQ(told, 1);
  EXPECT_EQ(torn_down, 1);
  EXPECT_EQ(data.told, 1);
  EXPECT_EQ(data.torn_down, 1);
  EXPECT_EQ(trainer.global_step(), 2);
  module.on_training_step = nullptr;
  trainer.fit(module, data);  // the trainer can be used again
  EXPECT_EQ(trainer.current_epoch(), 1);
}

std::string libtorch_failure() {
  Failing module;
  module.on_training_step = [](int64_t batch_idx) {
    if (batch_idx == 2) (void)torch::ones({2, 3}).matmul(torch::ones({2, 3}));
  };
  return error_of([&] { Trainer(quiet(1, {})).fit(module, tiny_loader(24)); });
}

TEST(Trainer, LibtorchsErrorsSayEpochBatchAndStep) {
  const std::string error = libtorch_failure();
  EXPECT_TRUE(has(error, "epoch 0, batch 2, global step 2")) << error;
  EXPECT_TRUE(has(error, "cannot be multiplied")) << error;
  EXPECT_FALSE(has(error, "Exception raised from")) << error;  // no C++ stack
}

TEST(Trainer, MayOutliveItsModule) {
  Trainer trainer(quiet(1, {}));
  {
    TinyModule module;
    trainer.fit(module, tiny_loader(4));
    EXPECT_EQ(trainer.module(), &module);
  }
  EXPECT_EQ(trainer.module(), nullptr);
}

TEST(Trainer, AModuleMayOutliveItsTrainer) {
  TinyModule module;
  Trainer(quiet(1, {})).fit(module, tiny_loader(4));
  EXPECT_FALSE(module.has_trainer());
}

// ---- global switches ------------------------------------------------------------------------------------------------

TEST(Trainer, DetectAnomalyNamesTheBackward) {
  struct Nan : TinyModule {
    at::Tensor training_step(const Batch& batch, int64_t) override {
      const at::Tensor output = forward(batch[0]);
      return torch::sqrt(output - output).sum() * 0;  // 0 times the infinite slope of sqrt
    }
  } module;
  Trainer(quiet(1, {})).fit(module, tiny_loader(4));  // unnoticed
  struct Quiet : c10::WarningHandler {
    void process(const c10::Warning& warning) override { told += warning.msg(); }
    std::string told = "";
  } quiet_handler;
  const c10::WarningUtils::WarningHandlerGuard guard(&quiet_handler);
  TrainerOptions options = quiet(1, {});
  options.detect_anomaly = true;
  Nan again;
  const std::string error = error_of([&] { Trainer(options).fit(again, tiny_loader(4)); });
  EXPECT_TRUE(has(error, "SqrtBackward0")) << error;
  EXPECT_TRUE(has(error, "nan")) << error;
  EXPECT_TRUE(has(quiet_handler.told, "Error detected in SqrtBackward0")) << quiet_handler.told;
  EXPECT_FALSE(torch::autograd::AnomalyMode::is_enabled());
}

TEST(Trainer, DeterministicSetsLibtorchsSwitch) {
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(false, false);
  TrainerOptions options = quiet(1, {});
  { const Trainer trainer(options); }
  EXPECT_FALSE(context.deterministicAlgorithms());
  options.deterministic = true;
  { const Trainer trainer(options); }
  EXPECT_TRUE(context.deterministicAlgorithms());
  EXPECT_FALSE(context.deterministicAlgorithmsWarnOnly());
  options.deterministic = "warn";
  { const Trainer trainer(options); }
  EXPECT_TRUE(context.deterministicAlgorithmsWarnOnly());
  context.setDeterministicAlgorithms(false, false);
}

TEST(Trainer, LibtorchsErrorsSayTheHook) {
  EXPECT_TRUE(has(libtorch_failure(), "training_step, epoch 0")) << libtorch_failure();
}

TEST(Trainer, AFailedRunLeavesNoStageBehind) {
  struct FailsOnce : MeanModule {
    void validation_step(const Batch& batch, int64_t batch_idx) override {
      if (!failed) {
        failed = true;
        throw Error("broken");
      }
      MeanModule::validation_step(batch, batch_idx);
    }
    bool failed = false;
  } module;
  Trainer trainer(quiet(1, {}));
  EXPECT_EQ(error_of([&] { trainer.fit(module, tiny_loader(4), constant_loaders({1.0})); }), "broken");
  EXPECT_TRUE(module.is_training());
  EXPECT_FALSE(trainer.sanity_checking());
  EXPECT_FALSE(trainer.training());
  trainer.validate(module, constant_loaders({1.0}));
  EXPECT_EQ(trainer.logged_metrics().at("mean"), 1.0);
}

TEST(Trainer, ASkippedEpochMovesTheEpochsSchedulers) {
  TinyModule module;
  module.make_optimizers = [](TinyModule& m) {
    return OptimizerConfig(SGD(m.parameters(), {.lr = 1.0}), StepLR({.step_size = 1, .gamma = 0.5}));
  };
  LambdaCallback skip(
      {.on_train_batch_start = [](Trainer& t, LightningModule&, const Batch&, int64_t) { t.skip_rest_of_epoch(); }});
  Trainer trainer(quiet(2, skip));
  trainer.fit(module, tiny_loader(24));
  EXPECT_EQ(trainer.optimizers().at(0).optimizer().groups()[0].lr, 0.25);
}

TEST(Trainer, AFailingBackwardIsNamed) {
  struct InPlace : TinyModule {
    torch::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
      auto loss = TinyModule::training_step(batch, batch_idx).exp();
      loss.detach().add_(1);  // exp needs its result in backward
      return loss;
    }
  } module;
  const std::string text = error_of([&] { Trainer(quiet(1, {})).fit(module, tiny_loader(4)); });
  EXPECT_TRUE(has(text, "backward, epoch 0")) << text;
}

TEST(Trainer, AModuleMayEndBeforeItsTrainer) {
  Trainer trainer(quiet(1, {}));
  {
    TinyModule module;
    trainer.fit(module, tiny_loader(4));
    EXPECT_EQ(trainer.module(), &module);
  }
  EXPECT_EQ(trainer.module(), nullptr);
}

}  // namespace
}  // namespace levin::trainer_test
