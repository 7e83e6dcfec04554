// The range test's curve against closed forms, and a search that leaves no trace.
#include "levin/callbacks/learning_rate_finder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "callbacks/quiet_trainer.h"
#include "levin/metrics/aggregation.h"
#include "levin/optim/cyclic_schedulers.h"
#include "levin/optim/lbfgs.h"
#include "levin/optim/step_schedulers.h"
#include "support/captured_console.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::learning_rate_finder_test {
namespace {

using namespace test;

// A constant stays itself from the first step on: the average's start at 0 is corrected.
TEST(LrCurve, SmoothsWithoutABiasTowardsZero) {
  LrCurve curve(false);
  for (int k = 0; k < 50; ++k) curve.add(k, 3.0);
  for (const auto& point : curve.points()) EXPECT_NEAR(point.loss, 3.0, 1e-12);
  LrCurve two(false);
  two.add(1, 10);
  two.add(2, 20);
  EXPECT_NEAR(two.points()[1].loss, (0.98 * 10 + 20) / (0.98 + 1), 1e-12);
}

// Loss falls most steeply where the logistic's middle is, on the axis that is plotted. Smoothing moves it to higher
// rates, by no more than a decade here.
TEST(LrCurve, SuggestsWhereTheLossFallsMostSteeply) {
  for (const double middle : {-4.0, -2.0}) {
    LrCurve curve(true);
    for (int k = 0; k <= 4000; ++k) {
      const double at = -8 + 8.0 * k / 4000;
      curve.add(std::pow(10.0, at), 1 / (1 + std::exp(6 * (at - middle))));
    }
    ASSERT_TRUE(curve.suggestion());
    const double found = std::log10(*curve.suggestion());
    EXPECT_GT(found, middle - 0.2);
    EXPECT_LT(found, middle + 0.3);
  }
}

TEST(LrCurve, LeavesOutTheFirstTenTheLastAndWhatIsNotFinite) {
  LrCurve short_one(true);
  for (int k = 1; k <= 12; ++k) short_one.add(k, 1.0 / k);
  EXPECT_FALSE(short_one.suggestion());  // one point is left
  short_one.add(13, 0.01);
  EXPECT_TRUE(short_one.suggestion());
  LrCurve broken(false);
  for (int k = 1; k <= 20; ++k) broken.add(k, k < 18 ? 20.0 - k : std::nan(""));
  ASSERT_TRUE(broken.suggestion());
  EXPECT_LE(*broken.suggestion(), 17);
  EXPECT_TRUE(broken.diverges(4));
}

TEST(LrCurve, DivergesAtAMultipleOfItsBest) {
  LrCurve curve(true);
  curve.add(0.1, 1);
  EXPECT_FALSE(curve.diverges(4));
  curve.add(0.2, 7);  // (0.98 + 7) / 1.98 = 4.03
  EXPECT_TRUE(curve.diverges(4));
  EXPECT_FALSE(curve.diverges(4.1));
}

// A loss of -1, as a log-likelihood may be: 4 times it would be better than it is.
TEST(LrCurve, DivergesAsFarAboveABestBelowZero) {
  LrCurve curve(true);
  for (int k = 1; k <= 5; ++k) {
    curve.add(k, -1);
    EXPECT_FALSE(curve.diverges(4));
  }
  for (int k = 6; k <= 300; ++k) curve.add(k, 1.9);
  EXPECT_FALSE(curve.diverges(4));
  for (int k = 301; k <= 600; ++k) curve.add(k, 2.2);  // above -1 + 3
  EXPECT_TRUE(curve.diverges(4));
}

std::shared_ptr<LearningRateFinder> finder(LearningRateFinderOptions options = {}) {
  return std::make_shared<LearningRateFinder>(std::move(options));
}

std::vector<at::Tensor> train(Callbacks callbacks, TinyModule& module, int64_t accumulate = 1) {
  torch::manual_seed(5);
  TrainerOptions options = quiet(2, std::move(callbacks));
  options.accumulate_grad_batches = accumulate;
  Trainer trainer(options);
  trainer.fit(module, tiny_loader(24));
  return {module.layer->weight.detach().clone(), module.layer->bias.detach().clone(), torch::rand({3})};
}

TEST(LearningRateFinder, ThatOnlyReportsWhatItFindsLeavesNoTrace) {
  for (const int64_t accumulate : {1, 2}) {
    TinyModule with, without;
    const auto looking = finder({.min_lr = 1e-4, .max_lr = 10, .num_training = 60, .update = false});
    const auto a = train({looking}, with, accumulate), b = train({}, without, accumulate);
    EXPECT_TRUE(looking->suggestion());
    for (size_t k = 0; k < a.size(); ++k) EXPECT_TRUE(torch::equal(a[k], b[k])) << k;
  }
}

TEST(LearningRateFinder, LeavesMetricObjectsAsTheyWere) {
  struct Counting : TinyModule {
    at::Tensor training_step(const Batch& batch, int64_t index) override {
      samples(static_cast<double>(batch.size()));  // logged at the end of the epoch only
      return TinyModule::training_step(batch, index);
    }
    void on_train_epoch_end() override { log("samples", samples); }
    metrics::SumMetric samples{};
  };
  Counting module;
  Trainer trainer(quiet(1, {finder({.num_training = 20, .update = false})}));
  trainer.fit(module, tiny_loader(24));
  EXPECT_EQ(trainer.callback_metrics().at("samples"), 24);
}

TEST(LearningRateFinder, TriesRatesFromTheFirstToTheLastByAFactorOrByASum) {
  for (const auto mode : {LrSpacing::exponential, LrSpacing::linear}) {
    TinyModule module;
    const auto looking = finder(
        {.min_lr = 1e-4, .max_lr = 1e-2, .num_training = 21, .mode = mode, .early_stop_threshold = std::nullopt});
    (void)train({looking}, module);
    const auto& points = looking->curve().points();
    ASSERT_EQ(points.size(), 21U);
    EXPECT_DOUBLE_EQ(points[0].lr, 1e-4);
    EXPECT_NEAR(points[20].lr, 1e-2, 1e-12);
    EXPECT_NEAR(points[10].lr, mode == LrSpacing::exponential ? 1e-3 : 0.00505, 1e-12);
  }
}

// The losses are the losses of plain SGD with these rates.
TEST(LearningRateFinder, SeesTheLossesOfTrainingWithThoseRates) {
  TinyModule module, truth;
  const auto looking = finder({.min_lr = 1e-2, .max_lr = 1, .num_training = 20, .early_stop_threshold = std::nullopt});
  (void)train({looking}, module);
  LrCurve expected(true);
  const auto loader = tiny_loader(24);
  int64_t step = 0;
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    loader->start(epoch, 0);
    for (Batch batch; step < 20 && loader->next(batch); ++step) {
      const double lr = 1e-2 * std::pow(100.0, static_cast<double>(step) / 19);
      truth.zero_grad();
      const at::Tensor loss = torch::mse_loss(truth.forward(batch[0]), batch[1]);
      loss.backward();
      expected.add(lr, loss.item<double>());
      const torch::NoGradGuard no_grad;
      for (auto& p : truth.parameters()) p.sub_(p.grad(), lr);
    }
  }
  ASSERT_EQ(looking->curve().points().size(), 20U);
  for (size_t k = 0; k < 20; ++k) {
    EXPECT_NEAR(looking->curve().points()[k].loss, expected.points()[k].loss, 1e-5) << k;
  }
}

TEST(LearningRateFinder, TrainsWithTheSuggestionAndKeepsTheGroupsRatio) {
  TinyModule module;
  module.make_optimizers = [](TinyModule& m) {
    SGD optimizer({m.layer->weight}, {.lr = 0.1});
    optimizer.add_param_group({.params = {m.layer->bias}, .lr = 0.05});
    return OptimizerConfig(std::move(optimizer));
  };
  const auto looking = finder({.min_lr = 1e-3, .max_lr = 1, .num_training = 50});
  CapturedConsole console;
  Trainer trainer(quiet(1, {looking}));
  trainer.fit(module, tiny_loader(24));
  ASSERT_TRUE(looking->suggestion());
  const auto& groups = trainer.optimizers()[0].optimizer().param_groups();
  EXPECT_DOUBLE_EQ(groups[0].lr, *looking->suggestion());
  EXPECT_DOUBLE_EQ(groups[1].lr, *looking->suggestion() / 2);
  EXPECT_TRUE(console.has("LearningRateFinder: the loss falls most steeply at "));
}

// The schedule begins at a tenth. The rate that is found replaces the rate that the optimizer was given.
TEST(LearningRateFinder, KnowsTheConfiguredRateUnderAWarmUp) {
  TinyModule module;
  module.make_optimizers = [](TinyModule& m) {
    SGD optimizer({m.layer->weight}, {.lr = 0.01});
    optimizer.add_param_group({.params = {m.layer->bias}, .lr = 0.005});
    return OptimizerConfig(std::move(optimizer), LinearLR({.start_factor = 0.1, .total_iters = 3}));
  };
  const auto looking = finder({.min_lr = 1e-3, .max_lr = 1, .num_training = 50});
  const CapturedConsole console;
  TrainerOptions options = quiet(1, {looking});
  options.limit_train_batches = int64_t{2};
  Trainer trainer(options);
  trainer.fit(module, tiny_loader(24));
  ASSERT_TRUE(looking->suggestion());
  EXPECT_TRUE(console.has("Training uses it; the configured rate is 0.01."));
  const auto& groups = trainer.optimizers()[0].optimizer().param_groups();
  EXPECT_DOUBLE_EQ(groups[0].initial_lr, *looking->suggestion());
  EXPECT_DOUBLE_EQ(groups[1].initial_lr, *looking->suggestion() / 2);
}

TEST(LearningRateFinder, EndsWhenTheLossRunsAway) {
  TinyModule module;
  const auto looking = finder({.min_lr = 1e-3, .max_lr = 1e6, .num_training = 100});
  (void)train({looking}, module);
  EXPECT_LT(looking->curve().points().size(), 100U);
}

TEST(LearningRateFinder, DrawsTheCurveAndWritesItsNumbers) {
  const TemporaryFolder folder;
  TinyModule module;
  const auto looking = finder({.min_lr = 1e-4, .max_lr = 1, .num_training = 30, .plot = folder / "lr.svg"});
  (void)train({looking}, module);
  std::ifstream svg(folder / "lr.svg"), csv(folder / "lr.csv");
  const std::string picture{std::istreambuf_iterator<char>(svg), {}};
  EXPECT_EQ(picture.rfind("<svg xmlns=\"http://www.w3.org/2000/svg\"", 0), 0U);
  EXPECT_TRUE(has(picture, "<polyline") && has(picture, "</svg>") && has(picture, "learning rate") &&
              has(picture, "<circle"));
  std::string line;
  std::getline(csv, line);
  EXPECT_EQ(line, "lr,loss");
  size_t rows = 0;
  while (std::getline(csv, line)) {
    const auto& point = looking->curve().points().at(rows++);
    EXPECT_EQ(std::stod(line), point.lr);
    EXPECT_EQ(std::stod(line.substr(line.find(',') + 1)), point.loss);
  }
  EXPECT_EQ(rows, looking->curve().points().size());
}

TEST(LearningRateFinderErrors, SayWhatIsInTheWay) {
  auto refusal = [](TinyModule& module) {
    return error_of([&] { (void)train({finder({.min_lr = 1e-4, .num_training = 30})}, module); });
  };
  TinyModule manual;
  manual.set_automatic_optimization(false);
  EXPECT_TRUE(has(refusal(manual), "LearningRateFinder: with manual optimization"));
  TinyModule still;
  still.make_optimizers = [](TinyModule& m) { return OptimizerConfig(SGD(m.parameters(), {.lr = 0})); };
  EXPECT_TRUE(has(refusal(still), "LearningRateFinder: the first parameter group's learning rate is 0"));
  TinyModule cycle;
  cycle.make_optimizers = [](TinyModule& m) {
    return OptimizerConfig(SGD(m.parameters(), {.lr = 0.1}), OneCycleLR({.max_lr = 0.5, .total_steps = 100}));
  };
  EXPECT_TRUE(has(refusal(cycle), "LearningRateFinder: OneCycleLR takes its learning rates from its own options"));
  TinyModule same;
  auto one = std::make_shared<SGD>(same.parameters(), SGDOptions{.lr = 0.1});
  same.make_optimizers = [one](TinyModule&) { return OptimizerConfig(one); };
  EXPECT_TRUE(has(refusal(same), "configure_optimizers returned the same optimizer a second time"));
  EXPECT_TRUE(has(error_of([] { LearningRateFinder({.min_lr = 1, .max_lr = 0.5}); }),
                  "min_lr: 1 is not less than max_lr, 0.5"));
  EXPECT_TRUE(has(error_of([] { LearningRateFinder({.num_training = 1}); }), "num_training: must be >= 2"));
  TinyModule untrained;
  TrainerOptions nothing = quiet(1, {finder()});
  nothing.limit_train_batches = int64_t{0};
  EXPECT_EQ(error_of([&] { Trainer(nothing).fit(untrained, tiny_loader(8)); }),
            "LearningRateFinder: limit_train_batches is 0, so there are no batches to try. Raise it, or drop the "
            "callback.");
  struct Empty : Loader {
    void start(int64_t, int64_t) override {}
    bool next(Batch&) override { return false; }
    [[nodiscard]] std::optional<int64_t> num_batches() const override { return std::nullopt; }
  };
  EXPECT_TRUE(has(error_of([&] { Trainer(quiet(1, {finder()})).fit(untrained, std::make_shared<Empty>()); }),
                  "the training loader gave no batch"));
  TinyModule module;
  Trainer trainer(quiet(1, {finder()}));
  EXPECT_TRUE(
      has(error_of([&] { (void)trainer.test(module, tiny_loader(8)); }), "LearningRateFinder: it runs training steps"));
}

}  // namespace
}  // namespace levin::learning_rate_finder_test
