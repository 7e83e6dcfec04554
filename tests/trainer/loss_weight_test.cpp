// Batches that count by their tokens: unequal ones add up to the big batch's gradient. The truth is LibTorch's own
// gradient of the mean over all tokens.
#include <gtest/gtest.h>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/optim/adam.h"
#include "levin/optim/lbfgs.h"
#include "levin/precision/mixed_precision.h"
#include "levin/strategies/device/dp.h"
#include "support/repeating_strategy.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::loss_weight_test {
namespace {

using namespace test;

constexpr int64_t kEpochs = 3;

/// Samples with (7 i) mod 5 tokens each, none to four: x (samples, 4), y (samples, 1), tokens (samples, 1).
std::vector<at::Tensor> token_data(int64_t samples) {
  const auto loader = tiny_loader(samples, samples);
  loader->start(0, 0);
  Batch batch;
  loader->next(batch);
  return {batch[0], batch[1], (torch::arange(samples) * 7).remainder(5).unsqueeze(1).to(at::kFloat)};
}

std::shared_ptr<TensorLoader> token_loader(int64_t samples, int64_t batch_size) {
  return std::make_shared<TensorLoader>(token_data(samples), batch_size);
}

/// The mean over the batch's tokens: nan without any.
at::Tensor token_mean(const at::Tensor& output, const Batch& batch) {
  const at::Tensor tokens = batch[2].to(output.scalar_type());
  return ((output - batch[1].to(output.scalar_type())).square() * tokens).sum() / tokens.sum();
}

struct TokenModule : TinyModule {
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
    if (says) says(*this, batch, batch_idx);
    const at::Tensor loss = token_mean(layer->forward(batch[0]), batch);
    log("loss", loss, {.on_step = true, .on_epoch = true});
    return loss;
  }
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>&) const override {
    return std::make_shared<TokenModule>();
  }
  std::function<void(TokenModule&, const Batch&, int64_t)> says = [](TokenModule& m, const Batch& batch, int64_t) {
    m.set_loss_weight(batch[2].sum());
  };
};

at::Tensor flat_weights(TinyModule& module) {
  return torch::cat({module.layer->weight.flatten(), module.layer->bias}).detach().clone();
}

enum class Kind { sgd, adamw };

/// Batches of 8 samples, in float64, by LibTorch's own optimizers.
at::Tensor weights_by_torch(Kind kind, int64_t samples) {
  TinyModule module;
  module.to(at::kDouble);
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  if (kind == Kind::sgd) {
    optimizer = std::make_unique<torch::optim::SGD>(module.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  } else {
    optimizer = std::make_unique<torch::optim::AdamW>(module.parameters(), torch::optim::AdamWOptions(0.05));
  }
  const auto loader = token_loader(samples, 8);
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    loader->start(epoch, 0);
    for (Batch batch; loader->next(batch);) {
      optimizer->zero_grad();
      token_mean(module.forward(batch[0].to(at::kDouble)), batch).backward();
      optimizer->step();
    }
  }
  return flat_weights(module);
}

TrainerOptions exact_options(int64_t accumulate) {
  TrainerOptions options = quiet(kEpochs, {});
  options.precision = "64-true";
  options.accumulate_grad_batches = accumulate;
  return options;
}

at::Tensor weights_by_levin(Kind kind, int64_t samples, int64_t batch_size, TrainerOptions options,
                            TokenModule&& module = TokenModule()) {
  module.make_optimizers = [kind](TinyModule& m) -> OptimizerConfig {
    if (kind == Kind::sgd) return SGD(m.parameters(), {.lr = 0.1, .momentum = 0.9});
    return AdamW(m.parameters(), {.lr = 0.05});
  };
  Trainer(std::move(options)).fit(module, token_loader(samples, batch_size));
  return flat_weights(module);
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item().toDouble();
}

TEST(LossWeight, UnequalMicroBatchesEqualOneBigBatch) {
  for (const Kind kind : {Kind::sgd, Kind::adamw}) {
    for (const int64_t samples : {32, 20}) {  // 20: a window of 4 samples at the end of each epoch
      const at::Tensor truth = weights_by_torch(kind, samples);
      for (const int64_t n : {1, 2, 4, 8}) {  // 8: some batches are one sample without a token
        EXPECT_LT(distance(weights_by_levin(kind, samples, 8 / n, exact_options(n)), truth), 1e-12)
            << samples << " samples, N = " << n;
      }
    }
  }
}

TEST(LossWeight, WithoutItUnequalMicroBatchesDoNot) {
  TokenModule plain;
  plain.says = nullptr;
  const at::Tensor weights = weights_by_levin(Kind::sgd, 32, 4, exact_options(2), std::move(plain));
  EXPECT_GT(distance(weights, weights_by_torch(Kind::sgd, 32)), 1e-4);
}

TEST(LossWeight, ReplicasAndTheirPartsCountByTheirTokens) {
  const at::Tensor truth = weights_by_torch(Kind::sgd, 32);
  for (const int64_t n : {1, 2, 3}) {  // 3: batches of 8 in parts of 3 samples, each shared out over two replicas
    TrainerOptions options = exact_options(n == 3 ? 1 : n);
    options.strategy = "dp";
    options.devices = 2;
    if (n == 3) options.micro_batch_size = 3;
    EXPECT_LT(distance(weights_by_levin(Kind::sgd, 32, n == 2 ? 4 : 8, options), truth), 1e-12) << n;
  }
}

// So large that float16 could not hold one of them times the loss scale. A power of two: not a bit may differ.
TEST(LossWeight, ItsSizeChangesNoBitAndNoStepIsSkippedForIt) {
  auto run = [](double times) {
    TokenModule module;
    module.says = [times](TokenModule& m, const Batch& batch, int64_t) { m.set_loss_weight(batch[2].sum() * times); };
    TrainerOptions options = quiet(kEpochs, {});
    options.precision = MixedPrecision({.dtype = MixedDtype::float16, .scaler = GradScalerOptions{.init_scale = 4096}});
    options.accumulate_grad_batches = 2;
    Trainer trainer(options);
    trainer.fit(module, token_loader(32, 4));
    EXPECT_EQ(trainer.skipped_steps(), 0) << times;
    EXPECT_EQ(trainer.global_step(), kEpochs * 4);
    return flat_weights(module);
  };
  const at::Tensor small = run(1), large = run(65536);
  EXPECT_TRUE(torch::equal(small, large));
}

TEST(LossWeight, HooksAndClippingSeeTheGradientOfTheMean) {
  TokenModule truth;
  const Batch all(token_data(8));
  token_mean(truth.forward(all[0]), all).backward();
  const double norm =
      std::hypot(truth.layer->weight.grad().norm().item<double>(), truth.layer->bias.grad().norm().item<double>());
  double seen = 0;
  TokenModule module;
  TrainerOptions options =
      quiet(1, {LambdaCallback({.on_before_optimizer_step = [&](Trainer&, LightningModule& m, Optimizer&) {
              double sum = 0;
              for (const auto& p : m.parameters()) sum += p.grad().square().sum().item<double>();
              seen = std::sqrt(sum);
            }})});
  options.accumulate_grad_batches = 4;
  options.gradient_clip_val = norm / 2;
  Trainer(options).fit(module, token_loader(8, 2));
  EXPECT_NEAR(seen, norm, 1e-5 * norm);
  // SGD with lr 0.1: the length of the step follows from the length of the clipped gradient.
  const double moved = (flat_weights(module) - flat_weights(truth)).norm().item<double>();
  EXPECT_NEAR(moved, 0.1 * norm / 2, 1e-4 * moved);
}

TEST(LossWeight, OfNothingCountsForNothingRegardlessOfItsLoss) {
  TokenModule module;
  TrainerOptions options = exact_options(2);
  auto data = token_data(16);
  data[2].zero_();
  Trainer trainer(options);
  const at::Tensor before = flat_weights(module);
  trainer.fit(module, std::make_shared<TensorLoader>(data, 4));  // every loss is nan
  EXPECT_TRUE(torch::equal(flat_weights(module).to(at::kFloat), before));
}

std::string error_saying(std::function<void(TokenModule&, const Batch&, int64_t)> says, int64_t accumulate = 2) {
  TokenModule module;
  module.says = std::move(says);
  return error_of([&] { Trainer(exact_options(accumulate)).fit(module, token_loader(16, 4)); });
}

TEST(LossWeightErrors, NameABatchThatIsUnlikeTheOthersOfItsWindow) {
  auto first_only = [](TokenModule& m, const Batch&, int64_t idx) {
    if (idx == 0) m.set_loss_weight(1);
  };
  std::string error = error_saying(first_only);
  EXPECT_TRUE(has(error,
                  "training_step: batch 1 of epoch 0 has no loss weight, unlike others of its accumulation "
                  "window. Call set_loss_weight for every batch that has a loss, or for none."))
      << error;
  auto second_only = [](TokenModule& m, const Batch&, int64_t idx) {
    if (idx == 1) m.set_loss_weight(1);
  };
  error = error_saying(second_only);
  EXPECT_TRUE(has(error, "batch 1 of epoch 0 has a loss weight, unlike others of its accumulation window")) << error;
  EXPECT_EQ(error_saying(first_only, 1), "");  // windows of their own
}

TEST(LossWeightErrors, ShowAWeightThatIsNone) {
  auto saying = [](double weight) {
    return error_saying([weight](TokenModule& m, const Batch&, int64_t) { m.set_loss_weight(weight); });
  };
  EXPECT_TRUE(has(saying(-2), "set_loss_weight: a weight must be a finite number >= 0, got -2."));
  EXPECT_TRUE(has(saying(std::nan("")), "got nan."));
  EXPECT_TRUE(has(saying(INFINITY), "got inf."));
  EXPECT_TRUE(has(error_saying([](TokenModule& m, const Batch& batch, int64_t) { m.set_loss_weight(batch[2]); }),
                  "set_loss_weight: a weight is one number, got 4 elements."));
  EXPECT_TRUE(has(error_saying([](TokenModule& m, const Batch&, int64_t) { m.set_loss_weight(at::Tensor()); }),
                  "got no tensor"));
}

TEST(LossWeightErrors, TellWhereItHasNoMeaning) {
  TokenModule manual;
  manual.set_automatic_optimization(false);
  EXPECT_TRUE(has(error_of([&] { Trainer(exact_options(1)).fit(manual, token_loader(16, 4)); }),
                  "set_loss_weight: with manual optimization training_step itself decides"));
  TokenModule closure;
  closure.make_optimizers = [](TinyModule& m) { return OptimizerConfig(LBFGS(m.parameters())); };
  EXPECT_TRUE(has(error_of([&] { Trainer(exact_options(1)).fit(closure, token_loader(16, 4)); }),
                  "set_loss_weight: LBFGS evaluates one batch several times"));
  TokenModule recorded;
  TrainerOptions options = quiet(1, {});
  options.strategy = RepeatingStrategy(std::make_shared<DeviceLog>());
  options.record_steps = true;
  EXPECT_TRUE(has(error_of([&] { Trainer(options).fit(recorded, token_loader(16, 4)); }),
                  "Turn TrainerOptions.record_steps off."));
}

TEST(LossWeight, MeansNothingOutsideOfTrainingSteps) {
  struct Everywhere : TokenModule {
    void validation_step(const Batch& batch, int64_t) override {
      set_loss_weight(-1);
      log("val_loss", token_mean(layer->forward(batch[0]), batch));
    }
    void on_train_batch_end(const at::Tensor&, const Batch&, int64_t) override { set_loss_weight(-1); }
  };
  Everywhere module;
  module.set_loss_weight(-1);
  Trainer trainer(exact_options(2));
  EXPECT_NO_THROW(trainer.fit(module, token_loader(32, 4), token_loader(8, 4)));
}

TEST(LossWeight, ContinuesBitwiseIdenticallyFromACheckpointInsideAWindow) {
  const TemporaryFolder folder;
  const std::string path = folder / "inside.ckpt";
  auto run = [&](bool save, const std::string& from) {
    TokenModule module;
    TrainerOptions options =
        quiet(2, {LambdaCallback({.on_train_batch_end = [&](Trainer& trainer, LightningModule&, const at::Tensor&,
                                                            const Batch&, int64_t batch_idx) {
                if (save && batch_idx == 1 && trainer.current_epoch() == 0) trainer.save_checkpoint(path);
              }})});
    options.accumulate_grad_batches = 3;
    Trainer trainer(options);
    trainer.fit(module, token_loader(28, 4), {}, from);
    return flat_weights(module);
  };
  const at::Tensor undisturbed = run(true, "");
  EXPECT_TRUE(torch::equal(run(false, path), undisturbed));
}

}  // namespace
}  // namespace levin::loss_weight_test
