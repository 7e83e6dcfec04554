// Recipes in a run of the Trainer: schedule-free AdamW, SAM and gradient centralisation.
#include <gtest/gtest.h>

#include "callbacks/resume.h"
#include "levin/callbacks/gradient_centralization.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/callbacks/weight_averaging.h"
#include "levin/optim/averaging_optimizer.h"
#include "levin/optim/lookahead.h"
#include "levin/optim/muon.h"
#include "levin/optim/sam.h"
#include "levin/optim/schedule_free_adamw.h"

namespace levin::recipes_in_runs_test {
namespace {

using namespace test;

OptimizerConfig schedule_free(TinyModule& module) {
  return ScheduleFreeAdamW(module.parameters(), {.lr = 0.05, .warmup_steps = 4});
}

at::Tensor weight_of(const TinyModule& module) {
  return module.layer->weight.detach().clone();
}

// ---- schedule-free --------------------------------------------------------------------------------------------------

// The averages of the same steps without a Trainer.
std::vector<at::Tensor> averages_after_every_step(int64_t steps) {
  TinyModule module;
  ScheduleFreeAdamW optimizer(module.parameters(), {.lr = 0.05, .warmup_steps = 4});
  const auto loader = tiny_loader(24);
  std::vector<at::Tensor> averages;
  while (static_cast<int64_t>(averages.size()) < steps) {
    loader->start(0, 0);
    for (Batch batch; loader->next(batch);) {
      optimizer.zero_grad();
      torch::mse_loss(module.layer->forward(batch[0]), batch[1]).backward();
      optimizer.step();
      optimizer.eval();
      averages.push_back(weight_of(module));
      optimizer.train();
    }
  }
  return averages;
}

// The weights after each step and in each validation; checkpoints of both.
class Watch final : public Callback {
 public:
  Watch(const TinyModule& module, const TemporaryFolder& folder) : module_(module), folder_(folder) {}
  void on_train_batch_end(Trainer&, LightningModule&, const at::Tensor&, const Batch&, int64_t) override {
    trained.push_back(weight_of(module_));
  }
  void on_validation_batch_start(Trainer&, LightningModule&, const Batch&, int64_t, int64_t) override {
    validated.push_back(weight_of(module_));
  }
  void on_validation_end(Trainer& trainer, LightningModule&) override {
    trainer.save_checkpoint(folder_ / "validated.ckpt");
  }
  void on_train_epoch_end(Trainer& trainer, LightningModule&) override {
    trainer.save_checkpoint(folder_ / "epoch.ckpt");
  }

  std::vector<at::Tensor> validated = {}, trained = {};

 private:
  const TinyModule& module_;
  const TemporaryFolder& folder_;
};

TEST(ScheduleFree, IsValidatedSavedAndLeftInTheModuleAsTheAverage) {
  const auto expected = averages_after_every_step(12);
  const TemporaryFolder folder;
  TinyModule module;
  module.make_optimizers = schedule_free;
  const auto watch = std::make_shared<Watch>(module, folder);
  TrainerOptions options = quiet(2, {watch});
  options.num_sanity_val_steps = 0;
  Trainer(options).fit(module, tiny_loader(24), tiny_loader(4));
  const auto& [validated, trained] = std::tie(watch->validated, watch->trained);
  ASSERT_EQ(validated.size(), 2U);
  ASSERT_EQ(trained.size(), 12U);
  EXPECT_TRUE(validated[0].equal(expected[5]));
  EXPECT_TRUE(validated[1].equal(expected[11]));
  EXPECT_FALSE(trained[11].equal(expected[11]));
  EXPECT_TRUE(weight_of(module).equal(expected[11]));
  for (const char* name : {"validated.ckpt", "epoch.ckpt"}) {
    const State saved = read_checkpoint(folder / name);
    EXPECT_TRUE(saved.part("model").tensor("layer.weight").equal(expected[11])) << name;
    EXPECT_TRUE(saved.part("current_model").tensor("layer.weight").equal(trained[11])) << name;
  }
}

TEST(ScheduleFree, ResumesBitwiseIdentically) {
  const ResumeTest test{.callback = [] { return std::make_shared<GradientCentralization>(); },
                        .optimizers = schedule_free};
  test.cut_after(8);
  test.cut_after(12);
}

TEST(ScheduleFree, RefusesASecondAverage) {
  TinyModule module;
  module.make_optimizers = schedule_free;
  const std::string text =
      error_of([&] { Trainer(quiet(1, {EMAWeightAveraging()})).fit(module, tiny_loader(8), tiny_loader(4)); });
  EXPECT_NE(text.find("EMAWeightAveraging and the optimizer ScheduleFreeAdamW"), std::string::npos) << text;
}

// ---- the other optimizers -------------------------------------------------------------------------------------------

TEST(SAM, TakesTwoPassesAStepInARun) {
  TinyModule module, by_hand;
  int passes = 0;
  module.on_training_step = [&](int64_t) { ++passes; };
  module.make_optimizers = [](TinyModule& m) -> OptimizerConfig {
    return SAM(SGD(m.parameters(), {.lr = 0.1, .momentum = 0.9}), {.rho = 0.1});
  };
  Trainer trainer(quiet(2, {}));
  trainer.fit(module, tiny_loader(24));
  EXPECT_EQ(passes, 24);
  EXPECT_EQ(trainer.global_step(), 12);

  SGD sgd(by_hand.parameters(), {.lr = 0.1, .momentum = 0.9});
  const auto loader = tiny_loader(24);
  for (int epoch = 0; epoch < 2; ++epoch) {
    loader->start(0, 0);
    for (Batch batch; loader->next(batch);) {
      const auto pass = [&] {
        by_hand.zero_grad();
        torch::mse_loss(by_hand.layer->forward(batch[0]), batch[1]).backward();
      };
      pass();
      const torch::NoGradGuard no_grad;
      const at::Tensor weight = weight_of(by_hand), bias = by_hand.layer->bias.detach().clone();
      const at::Tensor g = by_hand.layer->weight.grad().clone(), h = by_hand.layer->bias.grad().clone();
      const at::Tensor scale = 0.1 / (g.square().sum() + h.square().sum()).sqrt();
      by_hand.layer->weight.add_(g * scale);
      by_hand.layer->bias.add_(h * scale);
      {
        const torch::AutoGradMode with_grad(true);
        pass();
      }
      by_hand.layer->weight.copy_(weight);
      by_hand.layer->bias.copy_(bias);
      sgd.step();
    }
  }
  EXPECT_TRUE(torch::allclose(weight_of(module), weight_of(by_hand), 1e-5, 1e-7));
}

TEST(SAM, CannotAccumulate) {
  TinyModule module;
  module.make_optimizers = [](TinyModule& m) -> OptimizerConfig { return SAM(SGD(m.parameters()), {}); };
  TrainerOptions options = quiet(1, {});
  options.accumulate_grad_batches = 2;
  const std::string text = error_of([&] { Trainer(options).fit(module, tiny_loader(8)); });
  EXPECT_NE(text.find("accumulate_grad_batches: 2 is not possible with SAM"), std::string::npos) << text;
}

TEST(Recipes, ResumeBitwiseIdentically) {
  using Make = std::function<OptimizerConfig(TinyModule&)>;
  const std::vector<Make> all = {
      [](TinyModule& m) -> OptimizerConfig { return Muon(m.named_parameters().pairs(), {.lr = 0.02}); },
      [](TinyModule& m) -> OptimizerConfig {
        return Lookahead(SGD(m.parameters(), {.lr = 0.1, .momentum = 0.9}), {.k = 3});
      },
      [](TinyModule& m) -> OptimizerConfig { return SAM(SGD(m.parameters(), {.lr = 0.1, .momentum = 0.9}), {}); }};
  for (const Make& make : all) {
    const ResumeTest test{
        .callback = [] { return std::make_shared<GradientCentralization>(); }, .optimizers = make, .epochs = 2};
    test.cut_after(8);
  }
}

// ---- gradient centralisation ----------------------------------------------------------------------------------------

TEST(GradientCentralization, SubtractsTheMeanOfEachOutputsGradient) {
  const at::Tensor matrix = torch::rand({3, 4}).requires_grad_(true),
                   kernel = torch::rand({2, 3, 5, 5}).requires_grad_(true),
                   bias = torch::rand({3}).requires_grad_(true);
  const at::Tensor g = torch::rand({3, 4}), k = torch::rand({2, 3, 5, 5}), b = torch::rand({3});
  TinyModule module;
  Trainer trainer(quiet(1, {}));
  SGD sgd(std::vector<at::Tensor>{matrix, kernel, bias}, {.lr = 0.1});
  for (const bool only_convolutions : {false, true}) {
    matrix.mutable_grad() = g.clone();
    kernel.mutable_grad() = k.clone();
    bias.mutable_grad() = b.clone();
    GradientCentralization({.only_convolutions = only_convolutions}).on_before_optimizer_step(trainer, module, sgd);
    EXPECT_TRUE(torch::allclose(kernel.grad(), k - k.flatten(1).mean(1).reshape({2, 1, 1, 1}), 1e-5, 1e-6));
    EXPECT_TRUE(bias.grad().equal(b));
    if (only_convolutions) {
      EXPECT_TRUE(matrix.grad().equal(g));
    } else {
      EXPECT_TRUE(torch::allclose(matrix.grad(), g - g.mean(1, true), 1e-5, 1e-6));
    }
  }
}

}  // namespace
}  // namespace levin::recipes_in_runs_test
