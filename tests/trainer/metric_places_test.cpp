// Metric objects and names that are used in two places, and values that cannot be computed.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <stdexcept>

#include "levin/callbacks/lambda_callback.h"
#include "levin/metrics/r2_score.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "trainer/metric_module.h"

namespace levin::metric_places_test {
namespace {

using namespace metric_module;

// ---- one object, or one name, in two places -----------------------------------------------------------------------

std::string fit_error(Module& module, const Loaders& val = {tiny_loader(8)}) {
  const TemporaryFolder folder;
  return test::error_of<Error>([&] { Trainer(options(folder, 2)).fit(module, Loaders{tiny_loader(8)}, val); });
}

TEST(MetricObjects, OfTrainingAreNotThoseOfValidation) {
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
  test::expect_parts(fit_error(module),
                     {"log(\"train_share\") in training_step: validation has updated this Share too"});
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
  test::expect_parts(error,
                     {"log(\"share\") in validation_step: this Share is also logged as \"share\" for dataloader 0",
                      "Make a metric object for each loader", "dataloader_idx()"});
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

TEST(LoggedNames, OfTrainingAreNotThoseOfValidation) {
  Module module;
  module.in_validation = [&](const Batch&) { module.log("train_loss", 0.5); };
  test::expect_parts(fit_error(module), {"log(\"train_loss\") in training_step: validation_step logs this name too",
                                         "a mixture", "\"train_train_loss\" and \"val_train_loss\""});
}

TEST(LoggedNames, ThatSeveralLoadersShareAreSaid) {
  const TemporaryFolder folder;
  const test::CapturedConsole console;
  Module module;
  module.in_validation = [&](const Batch&) {
    module.log("which", static_cast<double>(module.dataloader_idx()), {.add_dataloader_idx = false});
  };
  const auto results = Trainer(options(folder)).validate(module, Loaders{tiny_loader(8), tiny_loader(8)});
  EXPECT_EQ(results.at(0).at("which"), 0);
  EXPECT_EQ(results.at(1).at("which"), 1);
  EXPECT_TRUE(console.has("log(\"which\") in validation_step: several loaders log this name")) << console.text();
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

}  // namespace
}  // namespace levin::metric_places_test
