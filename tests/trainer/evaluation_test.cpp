// Validation, test and prediction on their own.
#include <ATen/Context.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <fstream>
#include <sstream>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/checkpoint/checkpoint_writer.h"
#include "levin/loggers/csv_logger.h"
#include "levin/metrics/aggregation.h"
#include "levin/optim/sgd.h"
#include "levin/optim/step_schedulers.h"
#include "levin/trainer/trainer.h"
#include "support/captured_console.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::evaluation_test {
namespace {

using namespace test;

/// Logs the mean of its inputs, so that every result is known.
struct MeanModule : TinyModule {
  void validation_step(const Batch& batch, int64_t) override {
    log("mean", batch[0].mean());
    log("loader" + std::to_string(dataloader_idx()), 1.0, {.add_dataloader_idx = false});
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

TEST(Evaluation, ValidateReturnsOneMapPerLoader) {
  MeanModule module;
  Trainer trainer(quiet(1, {}));
  const std::vector<Metrics> one = trainer.validate(module, constant_loaders({0.5}));
  EXPECT_EQ(one, (std::vector<Metrics>{{{"loader0", 1.0}, {"mean", 0.5}}}));
  const std::vector<Metrics> two = trainer.validate(module, constant_loaders({0.25, 0.75}));
  EXPECT_EQ(two, (std::vector<Metrics>{{{"loader0", 1.0}, {"mean/dataloader_idx_0", 0.25}},
                                       {{"loader1", 1.0}, {"mean/dataloader_idx_1", 0.75}}}));
  EXPECT_EQ(trainer.callback_metrics().at("mean/dataloader_idx_1"), 0.75);
}

TEST(Evaluation, TestReturnsItsMetricsAndKeepsThem) {
  MeanModule module;
  Trainer trainer(quiet(1, {}));
  EXPECT_EQ(trainer.test(module, constant_loaders({2.0})), (std::vector<Metrics>{{{"mean", 2.0}}}));
  EXPECT_EQ(trainer.callback_metrics(), (Metrics{{"mean", 2.0}}));
  EXPECT_EQ(trainer.stage(), Stage::test);
}

TEST(Evaluation, PredictReturnsEachBatchOfEachLoader) {
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

TEST(Evaluation, PredictMayKeepNothing) {
  MeanModule module;
  EXPECT_TRUE(Trainer(quiet(1, {})).predict(module, tiny_loader(4), {.return_predictions = false}).empty());
  EXPECT_TRUE(
      has(error_of([&] { (void)Trainer(quiet(1, {})).predict(module, tiny_loader(4), {.ckpt_path = "nowhere.ckpt"}); }),
          "nowhere.ckpt"));
}

TEST(Evaluation, EvaluationHonoursItsLimit) {
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

TEST(Evaluation, TestsInInferenceModeAndValidatesInsideFitWithoutIt) {
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

// Draws in every validation hook, and trains with dropout.
struct Drawing : TinyModule {
  at::Tensor training_step(const Batch& batch, int64_t) override {
    return torch::mse_loss(layer->forward(torch::dropout(batch[0], 0.5, /*train=*/true)), batch[1]);
  }
  void validation_step(const Batch&, int64_t) override { validations.push_back(draw()); }
  void on_validation_start() override { draw(); }
  void on_validation_end() override { draw(); }
  static double draw() { return torch::rand({3}).sum().item<double>(); }
  std::vector<double> validations;
};

at::Tensor weight_after(const std::function<void(TrainerOptions&)>& change, const std::string& from = "") {
  Drawing module;
  TrainerOptions options = quiet(4, {});
  change(options);
  torch::manual_seed(5);
  Trainer(options).fit(module, tiny_loader(24), tiny_loader(8), from);
  return module.layer->weight.detach();
}

TEST(Evaluation, HowOftenAFitValidatesDoesNotChangeTheWeights) {
  const at::Tensor without = weight_after([](TrainerOptions& o) { o.limit_val_batches = int64_t{0}; });
  const std::vector<std::function<void(TrainerOptions&)>> changes = {
      [](TrainerOptions&) {},
      [](TrainerOptions& o) { o.num_sanity_val_steps = 0; },
      [](TrainerOptions& o) { o.check_val_every_n_epoch = 2; },
      [](TrainerOptions& o) { o.val_check_interval = 0.5; },
      [](TrainerOptions& o) { o.limit_val_batches = int64_t{1}; },
      [](TrainerOptions& o) { o.record_steps = true; }};
  for (size_t k = 0; k < changes.size(); ++k) EXPECT_TRUE(torch::equal(weight_after(changes[k]), without)) << k;
}

// Saved in on_validation_end, which draws numbers too, and after it.
TEST(Evaluation, AResumeAfterAValidationThatDrewNumbersIsExact) {
  const TemporaryFolder folder;
  const at::Tensor whole = weight_after([](TrainerOptions& o) { o.val_check_interval = 0.5; });
  for (const bool at_once : {true, false}) {
    const std::string path = folder / (at_once ? "at_once.ckpt" : "requested.ckpt");
    const auto save = [&](Trainer& trainer, LightningModule&) {
      if (trainer.sanity_checking() || trainer.seen_batches() != 9) return;
      if (at_once) trainer.save_checkpoint(path);
      if (!at_once) trainer.request_checkpoint(CheckpointRequest{path});
    };
    (void)weight_after([&](TrainerOptions& o) {
      o.val_check_interval = 0.5;
      o.callbacks.push_back(LambdaCallback({.on_validation_end = save}));
    });
    const at::Tensor resumed = weight_after([](TrainerOptions& o) { o.val_check_interval = 0.5; }, path);
    EXPECT_TRUE(torch::equal(resumed, whole)) << path;
  }
}

TEST(Evaluation, AFailedRunLeavesNoStageBehind) {
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
  EXPECT_EQ(error_of([&] { trainer.fit(module, tiny_loader(4), constant_loaders({1.0})); }),
            "validation_step, sanity check, epoch 0, batch 0, dataloader 0, global step 0: broken");
  EXPECT_TRUE(module.is_training());
  EXPECT_FALSE(trainer.sanity_checking());
  EXPECT_FALSE(trainer.training());
  trainer.validate(module, constant_loaders({1.0}));
  EXPECT_EQ(trainer.logged_metrics().at("mean"), 1.0);
}

// Keeps a tensor that its first forward pass makes, like a causal mask.
struct CachingModule : TinyModule {
  at::Tensor forward(const at::Tensor& x) override {
    if (!scale.defined()) scale = torch::linspace(0.5, 1.5, 1);
    return layer->forward(x) * scale;
  }
  at::Tensor training_step(const Batch& batch, int64_t) override { return forward(batch[0]).square().mean(); }
  void validation_step(const Batch& batch, int64_t) override { log("val_loss", forward(batch[0]).square().mean()); }
  at::Tensor scale;
};

TEST(Evaluation, ATensorThatItLeavesInTheModuleIsNamedWithTheOptionWhereTrainingCannotUseIt) {
  TrainerOptions options = quiet(1, {});
  CachingModule module;
  Trainer trainer(options);
  trainer.validate(module, tiny_loader(4));
  const std::string error = error_of([&] { trainer.fit(module, tiny_loader(4)); });
  EXPECT_TRUE(holds(error, {"training_step, epoch 0, batch 0", "nference tensor", "made by validate, test or predict",
                            "set TrainerOptions.inference_mode: false"}));
  options.inference_mode = false;
  CachingModule other;
  Trainer without(options);
  without.validate(other, tiny_loader(4));
  without.fit(other, tiny_loader(4));
  EXPECT_EQ(without.global_step(), 1);
}

TEST(Evaluation, AMetricThatItHasResetCanBeUsedInTraining) {
  struct Measured : TinyModule {
    at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
      mean.update(batch[1]);
      log("mean", mean, {.on_step = false, .on_epoch = true});
      return TinyModule::training_step(batch, batch_idx);
    }
    void validation_step(const Batch& batch, int64_t) override {
      val_mean.update(batch[1]);
      log("val_mean", val_mean);
    }
    void test_step(const Batch& batch, int64_t batch_idx) override { validation_step(batch, batch_idx); }
    metrics::MeanMetric mean, val_mean;
  } module;
  Trainer trainer(quiet(1, {}));
  trainer.validate(module, tiny_loader(4));
  trainer.test(module, tiny_loader(4));
  trainer.fit(module, tiny_loader(4), tiny_loader(4));  // targets 0, 0.2, 0.4 and 0.6
  EXPECT_NEAR(trainer.callback_metrics().at("mean"), 0.3, 1e-6);
  EXPECT_NEAR(trainer.callback_metrics().at("val_mean"), 0.3, 1e-6);
}

}  // namespace
}  // namespace levin::evaluation_test
