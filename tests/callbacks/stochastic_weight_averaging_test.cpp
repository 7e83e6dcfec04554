#include "levin/callbacks/stochastic_weight_averaging.h"

#include <gtest/gtest.h>

#include <numbers>

#include "callbacks/resume.h"
#include "levin/callbacks/early_stopping.h"
#include "levin/callbacks/lambda_callback.h"
#include "support/captured_console.h"

namespace levin::stochastic_weight_averaging_test {
namespace {

using namespace test;

// What a run of epochs of 6 steps did: the weights each epoch began with, and lr in each epoch.
struct Course {
  std::vector<State> starts;
  std::vector<double> lrs;
};

LambdaCallback recorder(Course& course) {
  return LambdaCallback({.on_train_epoch_start = [&](Trainer& trainer, LightningModule& module) {
    course.starts.push_back(module_tensors(module));
    course.lrs.push_back(trainer.optimizers()[0].optimizer().param_groups()[0].lr);
  }});
}

void expect_mean(const LightningModule& module, const std::vector<State>& states) {
  for (const auto& item : module.named_parameters()) {
    std::vector<at::Tensor> all;
    for (const auto& state : states) all.push_back(state.tensors.at(item.key()).to(at::kDouble));
    EXPECT_TRUE(torch::allclose(item.value().to(at::kDouble), torch::stack(all).mean(0), 1e-5, 1e-6)) << item.key();
  }
}

TEST(StochasticWeightAveraging, EndsWithTheMeanOfTheWeightsItsEpochsBeganWith) {
  Course course;
  TinyModule module;
  auto swa = std::make_shared<StochasticWeightAveraging>(
      StochasticWeightAveragingOptions{.swa_lrs = 0.05, .swa_epoch_start = int64_t{3}, .annealing_epochs = 2});
  Trainer(quiet(6, {swa, recorder(course)})).fit(module, tiny_loader(24));
  EXPECT_EQ(swa->swa_start(), 2);
  EXPECT_EQ(swa->n_averaged(), 4);
  expect_mean(module, {course.starts.begin() + 2, course.starts.end()});
}

TEST(StochasticWeightAveraging, TakesLrToItsOwnAlongACosineOrALine) {
  for (const AnnealStrategy strategy : {AnnealStrategy::cos, AnnealStrategy::linear}) {
    Course course;
    TinyModule module;
    Trainer(quiet(7, {StochasticWeightAveraging({.swa_lrs = 0.02,
                                                 .swa_epoch_start = int64_t{3},
                                                 .annealing_epochs = 4,
                                                 .annealing_strategy = strategy}),
                      recorder(course)}))
        .fit(module, tiny_loader(24));
    for (int64_t epoch = 0; epoch < 7; ++epoch) {
      const double t = std::clamp(static_cast<double>(epoch - 2) / 4, 0.0, 1.0);
      const double way = strategy == AnnealStrategy::linear ? t : (1 - std::cos(std::numbers::pi * t)) / 2;
      EXPECT_NEAR(course.lrs[static_cast<size_t>(epoch)], 0.1 + way * (0.02 - 0.1), 1e-12) << epoch;
    }
  }
}

TEST(StochasticWeightAveraging, TakesThePlaceOfTheModulesScheduler) {
  Course course;
  TinyModule module;
  module.make_optimizers = [](TinyModule& m) {
    return OptimizerConfig(SGD(m.parameters(), {.lr = 0.4}), StepLR({.step_size = 1, .gamma = 0.5}));
  };
  Trainer trainer(quiet(6, {StochasticWeightAveraging({.swa_lrs = 0.01, .swa_epoch_start = 0.5, .annealing_epochs = 0}),
                            recorder(course)}));
  trainer.fit(module, tiny_loader(24));
  // 0.5 * 6: the third epoch. lr is recorded after the callback, which with 0 epochs of annealing sets it at once.
  EXPECT_EQ(course.lrs, (std::vector<double>{0.4, 0.2, 0.01, 0.01, 0.01, 0.01}));
  ASSERT_EQ(trainer.lr_schedulers().size(), 1U);
  EXPECT_EQ(trainer.lr_schedulers()[0].scheduler->name(), "SWALR");
}

// The statistics of the averaged module, computed apart: the mean over the batches of their means and variances.
TEST(StochasticWeightAveraging, GathersBatchNormStatisticsForTheAverage) {
  Course course;
  TwoPartModule module;
  int64_t steps = 0;
  module.on_training_step = [&](int64_t) { ++steps; };
  Trainer trainer(
      quiet(4, {StochasticWeightAveraging({.swa_lrs = 0.05, .swa_epoch_start = int64_t{2}}), recorder(course)}));
  trainer.fit(module, tiny_loader(24));
  EXPECT_EQ(steps, 5 * 6);  // one pass more
  EXPECT_EQ(trainer.global_step(), 4 * 6);
  EXPECT_EQ(trainer.current_epoch(), 4);
  expect_mean(module, {course.starts.begin() + 1, course.starts.end()});

  const torch::NoGradGuard no_grad;
  torch::nn::Linear linear = module.linear;
  torch::nn::BatchNorm1d norm = module.norm;
  at::Tensor mean = torch::zeros({6}), var = torch::zeros({6});
  const auto loader = tiny_loader(24);
  loader->start(0, 0);
  for (Batch batch; loader->next(batch);) {
    const at::Tensor out = linear->forward(batch[0]);
    mean += out.mean(0) / 6;
    var += out.var(0, /*unbiased=*/true) / 6;
  }
  EXPECT_TRUE(torch::allclose(norm->running_mean, mean, 1e-5, 1e-6)) << norm->running_mean << mean;
  EXPECT_TRUE(torch::allclose(norm->running_var, var, 1e-5, 1e-6));
  EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 6);
  EXPECT_EQ(norm->options.momentum(), std::optional<double>(0.1));
}

TEST(StochasticWeightAveraging, LeavesFrozenBatchNormAlone) {
  TwoPartModule module;
  torch::nn::BatchNorm1d norm = module.norm;
  norm->running_mean.fill_(3);
  Trainer trainer(quiet(2, {StochasticWeightAveraging({.swa_lrs = 0.05, .swa_epoch_start = int64_t{1}}),
                            LambdaCallback({.on_train_start = [&](Trainer&, LightningModule&) { norm->eval(); }})}));
  trainer.fit(module, tiny_loader(24));
  EXPECT_TRUE(norm->running_mean.equal(torch::full({6}, 3.0F)));
}

// Lightning leaves the last weights in the module here.
TEST(StochasticWeightAveraging, EndsWithTheAverageWhenARunStopsEarly) {
  Course course;
  TinyModule module;
  Trainer trainer(
      quiet(9, {StochasticWeightAveraging({.swa_lrs = 0.05, .swa_epoch_start = int64_t{2}}), recorder(course),
                EarlyStopping({.monitor = "train_loss", .min_delta = 10, .patience = 3})}));
  trainer.fit(module, tiny_loader(24));
  ASSERT_EQ(trainer.current_epoch(), 4);
  expect_mean(module, {course.starts.begin() + 1, course.starts.end()});
}

TEST(StochasticWeightAveraging, ValidatesAndSavesTheWeightsThatTrain) {
  const TemporaryFolder folder;
  TinyModule module;
  at::Tensor trained;
  LambdaHooks hooks;
  hooks.on_train_epoch_end = [&](Trainer& t, LightningModule&) {
    trained = module.layer->weight.detach().clone();
    t.save_checkpoint(folder / "within.ckpt");
  };
  hooks.on_fit_end = [&](Trainer& t, LightningModule&) { t.save_checkpoint(folder / "end.ckpt"); };
  Trainer trainer(
      quiet(3, {StochasticWeightAveraging({.swa_lrs = 0.05, .swa_epoch_start = int64_t{1}}), LambdaCallback(hooks)}));
  trainer.fit(module, tiny_loader(24), tiny_loader(16));
  const State within = read_checkpoint(folder / "within.ckpt");
  EXPECT_TRUE(within.tensor("model.layer.weight").equal(trained));
  EXPECT_TRUE(within.part("current_model").empty());
  const State end = read_checkpoint(folder / "end.ckpt");
  EXPECT_TRUE(end.tensor("model.layer.weight").equal(module.layer->weight));
  EXPECT_TRUE(end.tensor("current_model.layer.weight").equal(trained));
  EXPECT_FALSE(trained.equal(module.layer->weight));
}

TEST(StochasticWeightAveraging, ResumesBitwiseIdentically) {
  ResumeTest test;
  test.callback = [] {
    return std::make_shared<StochasticWeightAveraging>(
        StochasticWeightAveragingOptions{.swa_lrs = 0.01, .swa_epoch_start = int64_t{3}, .annealing_epochs = 3});
  };
  test.optimizers = [](TinyModule& m) {
    return OptimizerConfig(AdamW(m.parameters(), {.lr = 0.05}), StepLR({.step_size = 1, .gamma = 0.9}));
  };
  test.cut_after(9);   // before averaging
  test.cut_after(12);  // when it is about to begin
  test.cut_after(15);  // in its first epoch
  test.cut_after(24);  // between two of its epochs
  test.cut_after(36);  // after the last epoch, before the average went into the module
}

TEST(StochasticWeightAveraging, AFinishedRunContinuesAsIfItHadNotEnded) {
  const TemporaryFolder folder;
  const auto run = [&](int64_t epochs, const std::string& from, const std::string& to) {
    TwoPartModule module;
    Trainer trainer(quiet(epochs, StochasticWeightAveraging({.swa_lrs = 0.05, .swa_epoch_start = int64_t{2}})));
    trainer.fit(module, tiny_loader(24), {}, from);
    if (!to.empty()) trainer.save_checkpoint(to);
    return module_tensors(module);
  };
  const State whole = run(5, "", "");
  static_cast<void>(run(3, "", folder / "three.ckpt"));
  expect_same_bits(run(5, folder / "three.ckpt", ""), whole, "module");
}

TEST(StochasticWeightAveraging, ThePassForBatchNormIsNotPartOfTraining) {
  TwoPartModule module;
  module.on_training_step = [](int64_t) { static_cast<void>(torch::rand({3})); };
  const auto random_state = [] { return at::globalContext().defaultGenerator(at::kCPU).get_state(); };
  at::Tensor random_before;
  Metrics metrics_before;
  Trainer trainer(quiet(2, {LambdaCallback({.on_train_end =
                                                [&](Trainer& t, LightningModule&) {
                                                  random_before = random_state();
                                                  metrics_before = t.callback_metrics();
                                                }}),
                            StochasticWeightAveraging({.swa_lrs = 0.05, .swa_epoch_start = int64_t{1}})}));
  trainer.fit(module, tiny_loader(24));
  EXPECT_TRUE(random_state().equal(random_before));
  EXPECT_EQ(trainer.callback_metrics(), metrics_before);
  EXPECT_EQ(trainer.global_step(), 12);
}

TEST(StochasticWeightAveraging, ReportsThatNothingWillBeAveraged) {
  const CapturedConsole console;
  TinyModule module;
  Trainer trainer(quiet(2, StochasticWeightAveraging({.swa_lrs = 0.05, .swa_epoch_start = int64_t{5}})));
  trainer.fit(module, tiny_loader(24));
  EXPECT_TRUE(console.has("swa_epoch_start is 5, and max_epochs 2: nothing will be averaged")) << console.text();
}

std::string refused(const std::function<void(TinyModule&)>& change,
                    StochasticWeightAveragingOptions options = {.swa_lrs = 0.1}, int64_t max_epochs = 2) {
  TinyModule module;
  change(module);
  TrainerOptions trainer_options = quiet(max_epochs, StochasticWeightAveraging(std::move(options)));
  trainer_options.max_steps = max_epochs < 0 ? 3 : -1;
  return error_of([&] { Trainer(trainer_options).fit(module, tiny_loader(8)); });
}

TEST(StochasticWeightAveraging, NamesWhatItCannotWorkWith) {
  std::string error = refused([](TinyModule& m) { m.set_automatic_optimization(false); });
  EXPECT_TRUE(has(error, "manual optimization") && has(error, "Use WeightAveraging")) << error;
  error = refused([](TinyModule& m) {
    m.make_optimizers = [](TinyModule& module) {
      OptimizerConfig config(SGD(module.parameters(), {.lr = 0.1}), StepLR({.step_size = 1}));
      config.schedule(StepLR({.step_size = 2}));
      return config;
    };
  });
  EXPECT_TRUE(has(error, "1 learning-rate scheduler") && has(error, "returned 2") && has(error, "SequentialLR"))
      << error;
  error = refused([](TinyModule& m) { m.make_optimizers = [](TinyModule&) { return OptimizerConfig(); }; });
  EXPECT_TRUE(has(error, "1 optimizer") && has(error, "returned 0")) << error;
  error = refused([](TinyModule&) {}, {.swa_lrs = 0.1, .swa_epoch_start = 0.75}, -1);
  EXPECT_TRUE(has(error, "swa_epoch_start 0.75") && has(error, "max_epochs")) << error;
}

TEST(StochasticWeightAveraging, RefusesOptionsOutOfRange) {
  std::string error = error_of([] { StochasticWeightAveraging({.swa_epoch_start = int64_t{0}}); });
  EXPECT_TRUE(has(error, "swa_lrs: must be set, and > 0") &&
              has(error, "swa_epoch_start: must be an integer >= 1 or a float from 0 to 1, got 0"))
      << error;
  error = error_of([] {
    StochasticWeightAveraging(
        {.swa_lrs = std::vector<double>{0.1, -0.1}, .swa_epoch_start = 1.5, .annealing_epochs = -1, .device = "moon"});
  });
  EXPECT_TRUE(has(error, "swa_lrs") && has(error, "got 1.5") && has(error, "annealing_epochs") && has(error, "moon"))
      << error;
}

TEST(Trainer, HasNoTrainingBatchesToForwardOutsideFit) {
  Trainer trainer(quiet(1, {}));
  EXPECT_TRUE(
      has(error_of([&] { trainer.forward_training_batches(); }), "no training batches here. Call it in a hook"));
}

}  // namespace
}  // namespace levin::stochastic_weight_averaging_test
