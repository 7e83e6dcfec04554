// Loaders of users while a fit runs: a pass of a hook over the training batches, loaders that must not be read ahead,
// and loaders with a state of their own.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/levin.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::running_loader_test {
namespace {

using test::error_of;
using test::has;
using test::holds;
using test::TemporaryFolder;

TrainerOptions quiet(int64_t epochs) {
  TrainerOptions options;
  options.max_epochs = epochs;
  options.num_sanity_val_steps = 0;
  options.logger = false;
  options.enable_progress_bar = options.enable_model_summary = options.enable_checkpointing = false;
  return options;
}

// Batches 0, 1, 2, … of one number each: their own index.
std::shared_ptr<TensorDataset> indices(int64_t count) {
  return std::make_shared<TensorDataset>(std::vector<at::Tensor>{torch::arange(count).to(at::kFloat).unsqueeze(1)});
}

// One weight that each update lowers by 1: the gradient is 1, and so is the learning rate.
class Counting : public LightningModule {
 public:
  at::Tensor training_step(const Batch& batch, int64_t) override {
    const auto index = batch[0].item<double>();
    if (at::GradMode::is_enabled()) trained.push_back(index);
    if (!at::GradMode::is_enabled()) forwarded.push_back(index);
    if (on_step) on_step();
    log("index", index, {.on_step = true, .on_epoch = true});
    accuracy(torch::tensor({int64_t{1}}), torch::tensor({index < 4 ? int64_t{1} : int64_t{0}}));
    log("below_four", accuracy, {.on_step = false, .on_epoch = true});
    return weight.sum();
  }
  void validation_step(const Batch&, int64_t) override { ++validation_batches; }
  void on_train_batch_end(const at::Tensor&, const Batch&, int64_t batch_idx) override {
    if (after_batch) after_batch(batch_idx);
  }
  void on_validation_end() override {
    ++validations;
    if (after_validation) after_validation();
  }
  OptimizerConfig configure_optimizers() override {
    return {SGD(parameters(), {.lr = 1}), StepLR({.step_size = 1, .gamma = 0.5})};
  }

  at::Tensor weight = register_parameter("weight", torch::zeros({1}));
  metrics::Accuracy accuracy{{.num_classes = 2}};
  std::vector<double> trained, forwarded;
  std::function<void()> on_step, after_validation;
  std::function<void(int64_t)> after_batch;
  int64_t validations = 0, validation_batches = 0;
};

const std::vector<double> kEight{0, 1, 2, 3, 4, 5, 6, 7};

// Of unknown length; it counts its batches itself, as a stream does, and cannot skip any.
class CountingStream final : public Loader {
 public:
  CountingStream(int64_t batches, bool ahead) : batches_(batches), ahead_(ahead) {}
  void start(int64_t, int64_t first) override { in_pass_ = first; }
  bool next(Batch& batch) override {
    if (in_pass_ >= batches_) return false;
    if (on_next) on_next();
    ++in_pass_;
    batch = {torch::full({1, 1}, static_cast<double>(given_++))};
    return true;
  }
  [[nodiscard]] std::optional<int64_t> num_batches() const override { return std::nullopt; }
  [[nodiscard]] bool may_be_read_ahead() const override { return ahead_; }
  [[nodiscard]] State state_dict() const override {
    State state;
    state.set("given", given_);
    state.tensors["twice"] = torch::full({2}, 2 * given_);
    return state;
  }
  void load_state_dict(const State& state) override {
    given_ = state.get<int64_t>("given");
    EXPECT_EQ(state.tensor("twice")[1].item<int64_t>(), 2 * given_);
  }
  std::function<void()> on_next;

 private:
  int64_t batches_;
  bool ahead_;
  int64_t in_pass_ = 0;
  int64_t given_ = 0;  // over all passes
};

// ---- a pass of a hook ----------------------------------------------------------------------------------------------

void expect_undisturbed(const Counting& module, const Trainer& trainer) {
  EXPECT_EQ(module.trained, kEight);
  EXPECT_EQ(trainer.global_step(), 8);
  EXPECT_EQ(trainer.callback_metrics().at("index_epoch"), 3.5);
  EXPECT_EQ(trainer.callback_metrics().at("below_four"), 0.5);
}

TEST(ForwardTrainingBatches, InsideAnEpochLeavesTheRunningPassAlone) {
  const auto loaders = std::vector<std::shared_ptr<Loader>>{
      std::make_shared<DataLoader>(indices(8), DataLoaderOptions{.num_workers = 0}),
      std::make_shared<DataLoader>(indices(8), DataLoaderOptions{.num_workers = 2}),
      std::make_shared<CountingStream>(8, true), std::make_shared<CountingStream>(8, false)};
  for (const auto& loader : loaders) {
    Counting module;
    Trainer trainer(quiet(1));
    module.after_batch = [&](int64_t batch_idx) {
      if (batch_idx == 2 || batch_idx == 5 || batch_idx == 7) trainer.forward_training_batches();
    };
    trainer.fit(module, loader);
    expect_undisturbed(module, trainer);
    EXPECT_EQ(module.forwarded.size(), 24);
  }
}

TEST(ForwardTrainingBatches, InAHookOfValidationLeavesTheRunningPassAlone) {
  Counting module;
  TrainerOptions options = quiet(1);
  options.val_check_interval = int64_t{3};
  Trainer trainer(options);
  module.after_validation = [&] { trainer.forward_training_batches(); };
  trainer.fit(module, DataLoader(indices(8)), DataLoader(indices(2)));
  expect_undisturbed(module, trainer);
  EXPECT_EQ(module.validations, 2);
}

TEST(ForwardTrainingBatches, ThatFailsLeavesTheRunAsItWas) {
  Counting module;
  Trainer trainer(quiet(1));
  std::string error;
  module.after_batch = [&](int64_t batch_idx) {
    if (batch_idx != 3) return;
    module.on_step = [&] {
      if (module.forwarded.size() == 2) throw Error("the pass failed");
    };
    error = error_of([&] { trainer.forward_training_batches(); });
    module.on_step = nullptr;
    EXPECT_TRUE(trainer.training());
    EXPECT_TRUE(at::GradMode::is_enabled());
  };
  trainer.fit(module, DataLoader(indices(8)));
  EXPECT_TRUE(has(error, "the pass failed")) << error;
  expect_undisturbed(module, trainer);
}

TEST(ForwardTrainingBatches, RefusesStepsThatWouldCallItAgainOrTrain) {
  Counting module;
  Trainer trainer(quiet(1));
  module.on_step = [&] { trainer.forward_training_batches(); };
  EXPECT_TRUE(
      holds(error_of([&] { trainer.fit(module, DataLoader(indices(8))); }),
            {"forward_training_batches: it was called in training_step, which it calls itself", "hook of fit"}));
  Counting manual;
  manual.set_automatic_optimization(false);
  Trainer other(quiet(1));
  manual.after_batch = [&](int64_t) { other.forward_training_batches(); };
  EXPECT_TRUE(holds(error_of([&] { other.fit(manual, DataLoader(indices(8))); }),
                    {"training_step of a module with manual optimization trains"}));
}

// ---- batches that depend on the weights
// ------------------------------------------------------------------------------

std::vector<double> weights_at_next(bool ahead) {
  Counting module;
  std::vector<double> seen;
  const auto loader = std::make_shared<CountingStream>(4, ahead);
  loader->on_next = [&] { seen.push_back(module.weight.item<double>()); };
  Trainer(quiet(1)).fit(module, loader);
  EXPECT_EQ(module.weight.item<double>(), -4);
  return seen;
}

TEST(ReadingAhead, IsTurnedOffByTheLoader) {
  EXPECT_EQ(weights_at_next(true), (std::vector<double>{0, 0, -1, -2}));
  EXPECT_EQ(weights_at_next(false), (std::vector<double>{0, -1, -2, -3}));
}

TEST(ReadingAhead, IsTurnedOffForACombinationByAnyOfItsLoaders) {
  const auto ahead = std::make_shared<CountingStream>(2, true);
  const auto not_ahead = std::make_shared<CountingStream>(2, false);
  const CombinedLoaderOptions options{.mode = CombinedMode::min_size};
  EXPECT_TRUE(CombinedLoader(Loaders({ahead, std::make_shared<CountingStream>(2, true)}), options).may_be_read_ahead());
  EXPECT_FALSE(CombinedLoader(Loaders({ahead, not_ahead}), options).may_be_read_ahead());
}

TEST(ReadingAhead, WithoutItAnEpochEndsAsUsualThoughItsLastBatchIsNotKnown) {
  Counting module;
  TrainerOptions options = quiet(2);
  options.accumulate_grad_batches = int64_t{2};
  Trainer trainer(options);
  std::vector<double> rates;
  module.after_validation = [&] { rates.push_back(trainer.optimizers()[0].optimizer().param_groups()[0].lr); };
  trainer.fit(module, std::make_shared<CountingStream>(3, false), DataLoader(indices(2)));
  EXPECT_EQ(module.trained, (std::vector<double>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(trainer.global_step(), 4);                 // windows of 2 and 1 batches
  EXPECT_EQ(module.weight.item<double>(), -3);         // two updates by 1 and two by 0.5
  EXPECT_EQ(rates, (std::vector<double>{0.5, 0.25}));  // after each epoch, as with a loader that is read ahead
  EXPECT_EQ(module.validations, 2);
}

TEST(ReadingAhead, WithoutItAValidationAfterTheLastBatchRunsOnce) {
  for (const int64_t every : {1, 2, 3}) {
    Counting module;
    TrainerOptions options = quiet(1);
    options.val_check_interval = every;
    Trainer(options).fit(module, std::make_shared<CountingStream>(3, false), DataLoader(indices(2)));
    EXPECT_EQ(module.validations, 3 / every);
  }
}

// ---- a state of its own
// ------------------------------------------------------------------------------------------------

std::vector<double> resumed(bool ahead, int64_t accumulate, const std::function<void(Trainer&, int64_t)>& save,
                            const std::string& path) {
  TrainerOptions options = quiet(2);
  options.accumulate_grad_batches = accumulate;
  {
    Counting module;
    Trainer trainer(options);
    module.after_batch = [&](int64_t batch_idx) { save(trainer, batch_idx); };
    trainer.fit(module, std::make_shared<CountingStream>(4, ahead));
    EXPECT_EQ(module.trained, kEight);
  }
  Counting module;
  Trainer(options).fit(module, std::make_shared<CountingStream>(4, ahead), {}, path);
  return module.trained;
}

TEST(LoaderState, ContinuesAfterTheLastBatchThatWasTrained) {
  const TemporaryFolder folder;
  const std::string path = folder / "middle.ckpt";
  for (const bool ahead : {false, true}) {
    for (const int64_t at : {0, 1, 2}) {
      const auto save = [&](Trainer& trainer, int64_t batch_idx) {
        if (trainer.current_epoch() == 1 && batch_idx == at) trainer.save_checkpoint(path);
      };
      const std::vector<double> rest(kEight.begin() + 5 + at, kEight.end());
      EXPECT_EQ(resumed(ahead, 1, save, path), rest);
      EXPECT_EQ(resumed(ahead, 4, save, path), rest);  // inside a window
    }
  }
}

TEST(LoaderState, OfACheckpointInsideABatchBelongsToItsWindow) {
  const TemporaryFolder folder;
  const std::string path = folder / "exception.ckpt";
  for (const bool ahead : {false, true}) {
    TrainerOptions options = quiet(2);
    options.accumulate_grad_batches = int64_t{2};
    Counting failing;
    Trainer trainer(options);
    failing.on_step = [&] {
      if (failing.trained.size() != 4) return;  // the second batch of a window
      trainer.save_checkpoint(path);
      throw Error("stop");
    };
    EXPECT_TRUE(has(error_of([&] { trainer.fit(failing, std::make_shared<CountingStream>(4, ahead)); }), "stop"));
    Counting module;
    Trainer(options).fit(module, std::make_shared<CountingStream>(4, ahead), {}, path);
    EXPECT_EQ(module.trained, (std::vector<double>{2, 3, 4, 5, 6, 7}));
  }
}

TEST(LoaderState, HoldsTheStateOfEachLoaderOfACombination) {
  const auto make = [] {
    return CombinedLoader(
        Loaders({std::make_shared<CountingStream>(8, false), std::make_shared<CountingStream>(8, true)}),
        {.mode = CombinedMode::min_size});
  };
  CombinedLoader one = make();
  one.start(0);
  Batch batch;
  for (int k = 0; k < 3; ++k) EXPECT_TRUE(one.next(batch));
  CombinedLoader other = make();
  other.load_state_dict(one.state_dict());
  other.start(0, 3);
  EXPECT_TRUE(other.next(batch));
  EXPECT_EQ(batch[0].item<double>(), 3);
  EXPECT_EQ(batch[1].item<double>(), 3);
}

TEST(LoaderState, IsLeftAsItWasByTrials) {
  Counting module;
  TrainerOptions options = quiet(1);
  options.callbacks = {LearningRateFinder({.min_lr = 1e-4, .num_training = 5, .update = false})};
  Trainer(options).fit(module, std::make_shared<CountingStream>(8, true));
  EXPECT_EQ(std::vector<double>(module.trained.end() - 8, module.trained.end()), kEight);
}

TEST(LoaderState, ThatTheCheckpointLacksIsReported) {
  const TemporaryFolder folder;
  const std::string path = folder / "without.ckpt";
  {
    Counting module;
    Trainer trainer(quiet(1));
    trainer.fit(module, DataLoader(indices(4)));
    trainer.save_checkpoint(path);
  }
  const test::CapturedConsole console;
  Counting module;
  Trainer(quiet(2)).fit(module, std::make_shared<CountingStream>(4, true), {}, path);
  EXPECT_TRUE(holds(console.text(), {"without.ckpt: it holds no state of the training loader of rank 0",
                                     "The loader starts from scratch"}));
}

}  // namespace
}  // namespace levin::running_loader_test
