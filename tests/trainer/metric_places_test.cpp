// Metric objects and names that are used in two places, and values that cannot be computed.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>

#include "levin/callbacks/lambda_callback.h"
#include "levin/callbacks/learning_rate_finder.h"
#include "levin/metrics/aggregation.h"
#include "levin/metrics/regression.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "trainer/metric_module.h"

namespace levin::metric_places_test {
namespace {

using namespace metric_module;

// ---- one object, or one name, in two places -----------------------------------------------------------------------

std::string fit_error(Module& module, const Loaders& val = {tiny_loader(8)}) {
  const TemporaryFolder folder;
  return test::error_of<Error>([&] { Trainer(options(folder, 2)).fit(module, Loaders{tiny_loader(8)}, val); });
}

TEST(MetricObjects, OfTrainingAndValidationAreSeparate) {
  Module module;
  module.train_options = LogOptions{.on_step = false, .on_epoch = true};
  module.in_validation = [&](const Batch& batch) {
    module.train(batch[0], batch[1]);
    module.log("val_share", module.train);
  };
  test::expect_parts(fit_error(module), {"log(\"train_share\") in training_step: this Share is also logged as "
                                         "\"val_share\" in validation_step",
                                         "one metric object for training and one for validation"});
}

TEST(MetricObjects, OfTrainingAreNotUpdatedByValidation) {
  Module module;
  module.train_options = LogOptions{.on_step = false, .on_epoch = true};
  module.in_validation = [&](const Batch& batch) { module.train.update(batch[0], batch[1]); };
  test::expect_parts(fit_error(module), {"training_step, epoch 0, batch 0",
                                         "Share: training_step updates the metric object that validation_step has "
                                         "updated since its last reset",
                                         "one metric object for training and one for validation"});
}

// Training gives 1 and validation 5 to one MeanMetric: their mean of 3 would be logged as validation's value.
struct Shared : test::TinyModule {
  at::Tensor training_step(const Batch& batch, int64_t index) override {
    if (in_training) in_training();
    return TinyModule::training_step(batch, index);
  }
  void validation_step(const Batch&, int64_t) override {
    if (in_validation) in_validation();
  }
  void on_validation_epoch_start() override {
    if (starts_validation) starts_validation();
  }
  void on_validation_epoch_end() override {
    if (ends_validation) ends_validation();
  }
  void on_train_epoch_end() override {
    if (ends_training) ends_training();
  }
  metrics::MeanMetric mean{};
  std::function<void()> in_training, in_validation, starts_validation, ends_validation, ends_training;
};

// ends_training and ends_validation, which log the value themselves.
std::function<void()> log_and_reset(Shared& module, const std::string& name) {
  return [&module, name] {
    module.log(name, module.mean.compute());
    module.mean.reset();
  };
}

std::string shared_error(Shared& module, Metrics* logged = nullptr, int64_t epochs = 2,
                         int64_t num_sanity_val_steps = 2) {
  const TemporaryFolder folder;
  TrainerOptions with = options(folder, epochs);
  with.num_sanity_val_steps = num_sanity_val_steps;
  Trainer trainer(std::move(with));
  const std::string error = test::error_of<Error>([&] { trainer.fit(module, {tiny_loader(8)}, {tiny_loader(8)}); });
  if (logged != nullptr) *logged = trainer.callback_metrics();
  return error;
}

TEST(MetricObjects, OfTrainingAndValidationAreSeparateWhereTrainingDoesNotLogThem) {
  const char* const remedy = "Make one metric object for training and one for validation.";
  const std::vector<std::string> mixed{"validation_step, epoch 0, batch 0",
                                       "MeanMetric: validation_step updates the metric object that training_step has "
                                       "updated since its last reset, and its value would contain the samples of both",
                                       remedy};
  const std::vector<std::string> lost{
      "log(\"v\") in validation_step: this MeanMetric is reset for validation, and the "
      "samples that it has from training_step would be lost",
      remedy};
  Shared module;
  module.in_training = [&] { module.mean(1.0); };
  module.in_validation = [&] {
    module.mean(5.0);
    module.log("v", module.mean);
  };
  const auto expect_errors = [&] {
    module.mean.reset();
    test::expect_parts(shared_error(module, nullptr, 2, /*num_sanity_val_steps=*/0), mixed);
    module.mean.reset();
    test::expect_parts(shared_error(module), lost);  // the sanity check has logged it
  };
  expect_errors();
  module.in_training = [&] { module.mean.update(1.0); };
  module.ends_training = log_and_reset(module, "tm");
  expect_errors();
  module.in_validation = [&] { module.mean.update(5.0); };
  module.ends_validation = log_and_reset(module, "v");
  module.mean.reset();
  test::expect_parts(shared_error(module), mixed);
}

TEST(MetricObjects, OfOneStageMayBeKeptByHand) {
  Metrics logged;
  Shared validates;  // over all validations, of which the sanity check's is one
  validates.in_validation = [&] { validates.mean.update(validates.trainer().sanity_checking() ? 2.0 : 5.0); };
  validates.ends_validation = [&] { validates.log("v", validates.mean.compute()); };
  EXPECT_EQ(shared_error(validates, &logged, 1), "");
  EXPECT_DOUBLE_EQ(logged.at("v"), 3.5);
  Shared trains;
  trains.in_training = [&] { trains.mean(1.0 + static_cast<double>(trains.current_epoch())); };
  trains.ends_training = [&] { trains.log("tm", trains.mean.compute()); };
  EXPECT_EQ(shared_error(trains, &logged), "");
  EXPECT_DOUBLE_EQ(logged.at("tm"), 1.5) << "over both epochs";
}

TEST(MetricObjects, ThatAreResetInBetweenMayBeShared) {
  Shared module;
  module.in_training = [&] {
    module.mean(1.0);
    module.log("batch", module.mean.batch_value());
    module.mean.reset();
  };
  module.in_validation = [&] { module.mean(5.0); };
  module.ends_validation = log_and_reset(module, "v");
  Metrics logged;
  EXPECT_EQ(shared_error(module, &logged), "");
  EXPECT_EQ(logged.at("v"), 5);
  EXPECT_EQ(logged.at("batch"), 1);
}

// The search for a learning rate trains, and takes back what it gave to metrics.
TEST(MetricObjects, MayBelongToTrialStepsThatAreUndone) {
  Shared module;
  bool trains = false;
  int64_t trial_steps = 0;
  module.in_training = [&] {
    if (trains) return;
    module.mean(1.0);
    ++trial_steps;
  };
  module.in_validation = [&] { module.mean(5.0); };
  module.ends_validation = log_and_reset(module, "v");
  const TemporaryFolder folder;
  TrainerOptions with = options(folder);
  with.callbacks = {LearningRateFinder({.num_training = 8, .early_stop_threshold = std::nullopt}),
                    LambdaCallback({.on_train_start = [&](Trainer&, LightningModule&) { trains = true; }})};
  Trainer trainer(std::move(with));
  trainer.fit(module, {tiny_loader(40)}, {tiny_loader(8)});
  EXPECT_EQ(trainer.callback_metrics().at("v"), 5);
  EXPECT_EQ(trial_steps, 8);
}

TEST(MetricObjects, OfOneLoaderHaveNoSamplesOfADifferentOne) {
  const TemporaryFolder folder;
  const Loaders two = {tiny_loader(8), tiny_loader(8)};
  for (const int64_t logged : {0, 1}) {
    Shared module;
    module.in_validation = [&] {
      module.mean(module.dataloader_idx() == 0 ? 1.0 : 5.0);
      if (module.dataloader_idx() == logged) module.log("v", module.mean);
    };
    const std::string error = test::error_of<Error>([&] { Trainer(options(folder)).validate(module, two); });
    test::expect_parts(error, {"log(\"v\") in validation_step: this MeanMetric also has samples of dataloader " +
                                   std::to_string(1 - logged) + ", and its value for dataloader " +
                                   std::to_string(logged) + " would contain samples of both",
                               "Make a metric object for each loader, and choose it by dataloader_idx()."});
  }
  Shared module;  // one value of all loaders
  module.in_validation = [&] { module.mean(module.dataloader_idx() == 0 ? 1.0 : 5.0); };
  module.ends_validation = [&] { module.log("v", module.mean); };
  Trainer trainer(options(folder));
  (void)trainer.validate(module, two);
  EXPECT_EQ(trainer.callback_metrics().at("v"), 3);
}

TEST(MetricObjects, OfTwoLoadersAreTwo) {
  const TemporaryFolder folder;
  Module module;
  module.in_validation = [&](const Batch& batch) {
    module.val(batch[0], batch[1]);
    module.log("share", module.val);
  };
  const Loaders two = {tiny_loader(8), tiny_loader(8)};
  const std::string error = test::error_of<Error>([&] { Trainer(options(folder)).validate(module, two); });
  test::expect_parts(error, {"log(\"share\") in validation_step: this Share also has samples of dataloader 1",
                             "Make a metric object for each loader", "dataloader_idx()"});
  module.in_validation = [&](const Batch&) { module.log("share", module.val); };
  test::expect_parts(test::error_of<Error>([&] { Trainer(options(folder)).validate(module, two); }),
                     {"log(\"share\") in validation_step: this Share is also logged as \"share\" for dataloader 0"});
  Share of_loader[2];
  module.in_validation = [&](const Batch& batch) {
    Share& own = of_loader[module.dataloader_idx()];
    own(batch[0], batch[1]);
    module.log("share", own);
  };
  const auto results = Trainer(options(folder)).validate(module, Loaders{tiny_loader(3), tiny_loader(8)});
  EXPECT_DOUBLE_EQ(results.at(0).at("share/dataloader_idx_0"), share_of(0, 3));
  EXPECT_DOUBLE_EQ(results.at(1).at("share/dataloader_idx_1"), share_of(0, 8));
}

TEST(MetricObjects, OfOneNameAreOne) {
  Module module;
  module.in_validation = [&](const Batch& batch) {
    Share& one = module.dataloader_idx() == 0 && module.val.update_count() > 0 ? module.train : module.val;
    one(batch[0], batch[1]);
    module.log("share", one);
  };
  test::expect_parts(fit_error(module),
                     {"log(\"share\") in validation_step: it was logged with a different Share object",
                      "Use one object for each name"});
}

TEST(MetricObjects, OfOneLoaderMayHaveTwoNames) {
  const TemporaryFolder folder;
  Module module;
  module.in_validation = [&](const Batch& batch) {
    module.val(batch[0], batch[1]);
    module.log("share", module.val);
    module.log("again", module.val);
  };
  const auto results = Trainer(options(folder)).validate(module, {tiny_loader(11, 4)});
  EXPECT_DOUBLE_EQ(results.at(0).at("share"), share_of(0, 11));
  EXPECT_DOUBLE_EQ(results.at(0).at("again"), share_of(0, 11));
}

TEST(LoggedNames, OfTrainingAndValidationAreSeparate) {
  Module module;
  module.in_validation = [&](const Batch&) { module.log("train_loss", 0.5); };
  test::expect_parts(fit_error(module), {"log(\"train_loss\") in training_step: validation_step logs this name too",
                                         "a mixture", "\"train_train_loss\" and \"val_train_loss\""});
}

TEST(LoggedNames, OfStepsAndEpochsAreThree) {
  const LogOptions both{.on_step = true, .on_epoch = true};
  for (const std::string name : {"loss", "loss_step", "loss_epoch"}) {
    Module module;
    module.on_training_step = [&](int64_t) { module.log("loss", 1.0, both); };
    module.in_validation = [&](const Batch&) { module.log(name, 5.0); };
    const std::string seen = "log(\"loss\") in training_step: validation_step logs ";
    test::expect_parts(fit_error(module),
                       {seen + (name == "loss" ? "this name too"
                                               : "\"" + name + "\", and both values would be called \"" + name + "\""),
                        "a mixture of the values of training and of validation"});
  }
  Module module;
  module.on_training_step = [&](int64_t) {
    module.log("loss", 1.0, both);
    module.log("loss_step", 5.0);
  };
  test::expect_parts(fit_error(module), {"log(\"loss_step\") in training_step: training_step logs \"loss\", and both "
                                         "values would be called \"loss_step\"",
                                         "only one of the two values. Use two names"});
  module.on_training_step = [&](int64_t) {
    module.log("loss", 1.0, {.on_step = true, .on_epoch = false});
    module.log("loss_step", 5.0);
    module.log("loss_epoch", 5.0);
  };
  EXPECT_EQ(fit_error(module), "") << "of steps alone a value has one name";
}

TEST(LoggedNames, OfTwoHooksAreTwo) {
  struct Twice : Module {
    void on_train_epoch_end() override { log("x", 5.0); }
    void on_train_batch_end(const at::Tensor&, const Batch&, int64_t) override {
      if (after_batches) log("x", 5.0, how);
    }
    LogOptions how{.on_step = false, .on_epoch = true};
    bool after_batches = false;
  } module;
  module.on_training_step = [&](int64_t) { module.log("x", 1.0, module.how); };
  test::expect_parts(fit_error(module), {"log(\"x\") in on_train_epoch_end: training_step logs this name too, and "
                                         "callbacks and loggers would get only one of the two values. Use two names"});
  module.after_batches = true;
  test::expect_parts(fit_error(module), {"log(\"x\") in on_train_batch_end: training_step logs this name too"});
}

TEST(LoggedNames, OfSeveralLoadersDiffer) {
  const TemporaryFolder folder;
  Module module;
  LogOptions how{.add_dataloader_idx = false};
  module.in_validation = [&](const Batch&) { module.log("which", static_cast<double>(module.dataloader_idx()), how); };
  const Loaders two = {tiny_loader(8), tiny_loader(8)};
  const std::string error = test::error_of<Error>([&] { Trainer(options(folder)).validate(module, two); });
  test::expect_parts(error, {"log(\"which\") in validation_step: validation_step logs this name too for dataloader 0",
                             "Use a name for each loader, or set .add_dataloader_idx to true."});
  module.in_validation = [&](const Batch&) { module.log(module.dataloader_idx() == 0 ? "first" : "second", 1.0, how); };
  const auto results = Trainer(options(folder)).validate(module, two);
  EXPECT_EQ(results.at(0).at("first"), 1);
  EXPECT_EQ(results.at(1).at("second"), 1);
}

// ---- values that cannot be computed --------------------------------------------------------------------------------

TEST(MetricObjects, OfTooFewSamplesAreNan) {
  struct R2Module : Module {
    at::Tensor training_step(const Batch& batch, int64_t index) override {
      train_r2(layer->forward(batch[0]).detach().squeeze(1), batch[1].squeeze(1));
      log("train_r2", train_r2, {.on_step = true, .on_epoch = true});
      return Module::training_step(batch, index);
    }
    metrics::R2Score train_r2{}, val_r2{};
  };
  const TemporaryFolder folder;
  const test::CapturedConsole console;
  R2Module module;
  module.in_validation = [&](const Batch& batch) {
    module.val_r2(module.forward(batch[0]).squeeze(1), batch[1].squeeze(1));
    module.log("val_r2", module.val_r2);
  };
  Trainer trainer(options(folder));
  trainer.fit(module, {tiny_loader(5)}, {tiny_loader(1)});  // the last training batch is one sample
  EXPECT_TRUE(std::isnan(trainer.callback_metrics().at("val_r2")));
  EXPECT_TRUE(std::isnan(trainer.callback_metrics().at("train_r2_step")));
  EXPECT_TRUE(std::isfinite(trainer.callback_metrics().at("train_r2_epoch")));
  EXPECT_TRUE(console.has("log(\"val_r2\") in validation_step: R2Score: it was given 1 sample")) << console.text();
  EXPECT_TRUE(console.has("Its value is NaN."));
}

TEST(MetricObjects, ThatAreGoneDoNotReplaceTheErrorOfARun) {
  const TemporaryFolder folder;
  std::vector<std::string> calls;
  Module module;
  module.on_training_step = [&](int64_t batch) {
    if (batch == 0) return;
    Share local;
    local(torch::zeros({1}), torch::ones({1}));
    module.log("local", local, {.on_step = false, .on_epoch = true});
    static_cast<void>(std::map<std::string, int>().at("missing"));
  };
  TrainerOptions with = options(folder);
  with.callbacks = {
      LambdaCallback({.teardown = [&](Trainer&, LightningModule&, Stage) { calls.emplace_back("teardown"); },
                      .on_exception =
                          [&](Trainer& trainer, LightningModule&, const std::exception&) {
                            calls.emplace_back("on_exception");
                            EXPECT_TRUE(trainer.callback_metrics().contains("train_loss"));
                            trainer.save_checkpoint(folder / "last.ckpt");
                          }})};
  Trainer trainer(std::move(with));
  const std::string error = test::error_of<std::out_of_range>([&] { trainer.fit(module, {tiny_loader(8)}); });
  test::expect_parts(error, {"training_step, epoch 0, batch 1", "map::at", "Metrics so far: train_loss."});
  EXPECT_EQ(calls, (std::vector<std::string>{"on_exception", "teardown"}));
  EXPECT_TRUE(std::filesystem::exists(folder / "last.ckpt"));
}

TEST(MetricObjects, ThatAreGoneAreNoticedInTheNextBatch) {
  Module module;
  module.on_training_step = [&](int64_t) {
    Share local;
    local(torch::zeros({1}), torch::ones({1}));
    module.log("local", local, {.on_step = false, .on_epoch = true});
  };
  test::expect_parts(fit_error(module), {"log(\"local\") in training_step: the metric was destroyed before the epoch"});
}

TEST(LoggedNames, OfValuesWithoutWeightDoNotCount) {
  const TemporaryFolder folder;
  for (const int64_t devices : {1, 2}) {
    struct Counts : Module {
      std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>&) const override {
        return std::make_shared<Counts>();
      }
      void validation_step(const Batch& batch, int64_t) override {
        const at::Tensor counted = batch[1].masked_select(batch[1] > 0.5);
        log("mean", counted.mean(), {.batch_size = counted.numel()});
      }
    };
    Counts module;
    TrainerOptions with = options(folder);
    if (devices == 2) {
      with.strategy = "dp";
      with.devices = 2;
    }
    const auto results = Trainer(std::move(with)).validate(module, {tiny_loader(8, 2)});
    EXPECT_NEAR(results.at(0).at("mean"), 0.7, 1e-6) << devices;
  }
}

// The list of hooks is the source; the page shows them in order.
TEST(Hooks, ThePageNamesEachWithItsRule) {
  std::ifstream file(test::source_dir() + "/docs/hooks.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  const std::string rules = page.substr(page.find("## What `log` may do where"));
  const auto is_in = [](const std::string& text, const std::string& name) {
    return text.find(name) != std::string::npos;
  };
  const auto check = [&](const std::string& name, const LogRule& rule) {
    std::string shown = name;  // the page describes validation, and states that test and predict are alike
    for (const std::string stage : {"on_test_", "on_predict_"}) {
      if (name.starts_with(stage)) shown = "on_validation_" + name.substr(stage.size());
    }
    EXPECT_TRUE(is_in(page, shown)) << name;
    if (!rule.allowed || name == "backward" || name == "optimizer_step") return;  // the module's own steps inside hooks
    const std::string stem = name.ends_with("_end") ? name.substr(0, name.size() - 4) + "_start/end" : name;
    EXPECT_TRUE(is_in(rules, name) || is_in(rules, stem)) << name;
  };
#define LEVIN_HOOK(name, rule) check(#name, log_rules::rule);
  LEVIN_HOOKS(LEVIN_HOOK)
#undef LEVIN_HOOK
}

}  // namespace
}  // namespace levin::metric_places_test
