// What the entry points return and which files they leave, and their messages when something is missing or fails.
#include "levin/trainer/trainer.h"

#include <ATen/Context.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <fstream>
#include <sstream>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/callbacks/model_summary.h"
#include "levin/checkpoint/checkpoint_file.h"
#include "levin/loggers/csv_logger.h"
#include "levin/optim/sgd.h"
#include "levin/optim/step_schedulers.h"
#include "levin/trainer/checkpoint_callback.h"
#include "levin/trainer/module_access.h"
#include "levin/trainer/replaces_default.h"
#include "support/captured_console.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::trainer_test {
namespace {

using namespace test;

// ---- the files that a run leaves ------------------------------------------------------------------------------------

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

TEST(Trainer, OnlyTheModuleIsAskedWhatElseAWeightsOnlyCheckpointHolds) {
  const TemporaryFolder folder;
  struct Saving : TinyModule {
    void on_save_checkpoint(State& checkpoint) override { checkpoint.set("of_the_module", true); }
  } module;
  const auto on_save = [](Trainer&, LightningModule&, State& checkpoint) { checkpoint.set("of_the_callback", true); };
  Trainer trainer(quiet(1, {LambdaCallback({.on_save_checkpoint = on_save})}));
  trainer.fit(module, tiny_loader(4));
  trainer.save_checkpoint(folder / "whole.ckpt");
  trainer.save_checkpoint(folder / "weights.ckpt", /*weights_only=*/true);
  const State whole = read_checkpoint(folder / "whole.ckpt"), weights = read_checkpoint(folder / "weights.ckpt");
  EXPECT_TRUE(whole.has("of_the_module") && whole.has("of_the_callback"));
  EXPECT_TRUE(weights.has("of_the_module"));
  EXPECT_FALSE(weights.has("of_the_callback"));
}

TEST(Trainer, ACallbackMayHaveOtherWeightsToSave) {
  const TemporaryFolder folder;
  struct Zeros : Callback {
    [[nodiscard]] State weights_to_save(const LightningModule& module) const override {
      State zeros;
      for (const auto& item : module.named_parameters()) zeros.tensors[item.key()] = torch::zeros_like(item.value());
      return zeros;
    }
  };
  TinyModule module;
  Trainer trainer(quiet(1, {std::make_shared<Zeros>()}));
  trainer.fit(module, tiny_loader(4));
  for (const bool weights_only : {false, true}) {
    trainer.save_checkpoint(folder / "a.ckpt", weights_only);
    EXPECT_EQ(read_checkpoint(folder / "a.ckpt").tensor("model.layer.weight").abs().sum().item<float>(), 0);
  }
  EXPECT_GT(module.layer->weight.abs().sum().item<float>(), 0);
}

TEST(Trainer, HyperparametersAreWrittenNextToTheMetrics) {
  const TemporaryFolder folder;
  TinyModule module;
  module.save_hyperparameters(SGDOptions{.lr = 0.25, .nesterov = true});
  TrainerOptions options = quiet(1, {}, folder.path());
  options.logger = CSVLogger();
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
  ModuleAccess::set_optimizer_override(module, [](LightningModule& m) { return SGD(m.parameters(), {.lr = 0.5}); });
  Trainer trainer(quiet(1, {}));
  trainer.fit(module, tiny_loader(4));
  EXPECT_EQ(trainer.optimizers().at(0).optimizer().param_groups()[0].lr, 0.5);
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

TEST(Trainer, TheModulesCallbacksReplaceCallbacksOfTheSameClass) {
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

TEST(Trainer, RefusesNullInAListOfPartsWithItsPlace) {
  TrainerOptions options = quiet(1, {});
  options.callbacks.push_back(Tagged(1));
  options.callbacks.push_back(std::shared_ptr<Callback>());
  options.logger = std::shared_ptr<Logger>();
  const std::string error = error_of([&] { Trainer trainer(options); });
  EXPECT_TRUE(has(error, "TrainerOptions.callbacks[1]: null where a callback belongs")) << error;
  EXPECT_TRUE(has(error, "TrainerOptions.logger[0]: null where a logger belongs. Give a logger, or leave")) << error;

  struct GivesNull : TinyModule {
    Callbacks configure_callbacks() override { return {Tagged(1), std::shared_ptr<Callback>()}; }
  } module;
  const std::string own = error_of([&] { Trainer(quiet(1, {})).fit(module, tiny_loader(4)); });
  EXPECT_TRUE(has(own, "configure_callbacks: callback 1 of the list is null. Give a callback, or leave")) << own;
}

TEST(Trainer, RefusesACheckpointCallbackWithCheckpointingOff) {
  struct Saves : Checkpoint {
    std::string checkpoint_path(Trainer&, const std::string&) override { return ""; }
  };
  TrainerOptions options = quiet(1, {Saves()});
  options.enable_checkpointing = false;
  const std::string error = error_of([&] { Trainer trainer(options); });
  EXPECT_TRUE(has(error, "TrainerOptions.enable_checkpointing: false, but a checkpoint callback was given")) << error;
}

TEST(Trainer, ACallbackMayReplaceTheDefaultSummary) {
  struct OneLine : Callback, ReplacesDefault {
    [[nodiscard]] std::string default_for() const override { return "summary"; }
  };
  TrainerOptions options = quiet(1, {});
  options.enable_model_summary = true;
  EXPECT_NE(Trainer(options).callback<ModelSummary>(), nullptr);
  options.callbacks = OneLine();
  EXPECT_EQ(Trainer(options).callback<ModelSummary>(), nullptr);
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
  EXPECT_TRUE(has(error_of([&] { trainer.validate(module, none); }), "override val_dataloader()"));
  EXPECT_TRUE(has(error_of([&] { trainer.test(module, none); }), "override test_dataloader()"));
  EXPECT_EQ(error_of([&] { trainer.predict(module, none); }),
            "there is no loader to run on: DataModule has none. Set the option that names this data, or override "
            "predict_dataloader() in the data module or the module, or pass loaders.");
  const auto empty = std::make_shared<TensorLoader>(std::vector<at::Tensor>{torch::zeros({0, 4})}, 2);
  EXPECT_TRUE(has(error_of([&] { trainer.fit(module, empty); }), "the training loader has no batches"));
}

TEST(Trainer, ReportsWhatNeedsATrainer) {
  TinyModule module;
  EXPECT_TRUE(has(error_of([&] { (void)module.trainer(); }), "the module is not attached to a Trainer"));
  EXPECT_EQ(module.current_epoch(), 0);
  module.log("x", 1.0);  // without a trainer a step may still be called directly
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
  void on_exception(const std::exception& error) override { errors.emplace_back(error.what()); }
  void teardown(Stage) override { ++torn_down; }
  std::vector<std::string> errors = {};
  int torn_down = 0;
};

TEST(Trainer, TakesADataModuleThatIsMadeInTheCall) {
  struct Data : DataModule {
    std::shared_ptr<Loader> train_dataloader() override { return tiny_loader(8); }
    Loaders val_dataloader() override { return tiny_loader(8); }
    Loaders test_dataloader() override { return tiny_loader(8); }
    Loaders predict_dataloader() override { return tiny_loader(8); }
  };
  TinyModule module;
  Trainer trainer(quiet(1, {}));
  trainer.fit(module, Data());
  EXPECT_EQ(trainer.validate(module, Data()).at(0).count("val_loss"), 1U);
  EXPECT_EQ(trainer.test(module, Data()).at(0).count("test_loss"), 1U);
  EXPECT_EQ(trainer.predict(module, Data()).at(0).size(), 2U);
}

TEST(Trainer, ShowsCallbacksTheTrainingLoader) {
  const std::shared_ptr<Loader> loader = tiny_loader(8);
  std::shared_ptr<Loader> seen;
  LambdaCallback watch(
      {.on_train_start = [&](Trainer& trainer, LightningModule&) { seen = trainer.train_dataloader(); }});
  TinyModule module;
  Trainer(quiet(1, watch)).fit(module, loader);
  EXPECT_EQ(seen, loader);
}

TEST(Trainer, AFailureIsReportedOnceAndTheRunIsTornDown) {
  struct Data : DataModule {
    std::shared_ptr<Loader> train_dataloader() override { return tiny_loader(24); }
    void on_exception(const std::exception&) override { ++exceptions; }
    void teardown(Stage) override { ++torn_down; }
    int exceptions = 0, torn_down = 0;
  } data;
  int exceptions = 0, torn_down = 0;
  LambdaCallback watch({.teardown = [&](Trainer&, LightningModule&, Stage) { ++torn_down; },
                        .on_exception = [&](Trainer&, LightningModule&, const std::exception&) { ++exceptions; }});
  Failing module;
  module.on_training_step = [](int64_t batch_idx) {
    if (batch_idx == 2) throw std::out_of_range("the user's own");
  };
  Trainer trainer(quiet(1, watch));
  EXPECT_THROW(trainer.fit(module, data), std::out_of_range);  // the type is kept
  EXPECT_EQ(module.errors, std::vector<std::string>{"training_step, epoch 0, batch 2, global step 2: the user's own"});
  EXPECT_EQ(module.torn_down, 1);
  EXPECT_EQ(exceptions, 1);
  EXPECT_EQ(torn_down, 1);
  EXPECT_EQ(data.exceptions, 1);
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
  TrainerOptions ignoring = quiet(1, {});
  ignoring.nonfinite_loss = NonFiniteLoss::ignore;
  Trainer(ignoring).fit(module, tiny_loader(4));  // unnoticed
  struct Quiet : c10::WarningHandler {
    void process(const c10::Warning& warning) override { message += warning.msg(); }
    std::string message = "";
  } quiet_handler;
  const c10::WarningUtils::WarningHandlerGuard guard(&quiet_handler);
  TrainerOptions options = quiet(1, {});
  options.detect_anomaly = true;
  Nan again;
  const std::string error = error_of([&] { Trainer(options).fit(again, tiny_loader(4)); });
  EXPECT_TRUE(has(error, "SqrtBackward0")) << error;
  EXPECT_TRUE(has(error, "nan")) << error;
  EXPECT_TRUE(has(quiet_handler.message, "Error detected in SqrtBackward0")) << quiet_handler.message;
  EXPECT_FALSE(torch::autograd::AnomalyMode::is_enabled());
}

TEST(Trainer, LibtorchsErrorsSayTheHook) {
  EXPECT_TRUE(has(libtorch_failure(), "training_step, epoch 0")) << libtorch_failure();
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
  EXPECT_EQ(trainer.optimizers().at(0).optimizer().param_groups()[0].lr, 0.25);
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
