// Fabric with a LightningModule: its own steps, in a loop without a loader.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "callbacks/quiet_trainer.h"
#include "levin/data/loading/dataloader.h"
#include "levin/optim/sgd.h"
#include "levin/optim/step_schedulers.h"
#include "levin/trainer/fabric.h"
#include "levin/trainer/lightning_module.h"
#include "support/error_text.h"
#include "support/tiny_module.h"
#include "support/unsized_loader.h"
#include "trainer/fabric_net.h"

namespace levin::fabric_module_test {
namespace {

using namespace test;

constexpr int64_t kEpochs = 2;

// Its losses have weights, and it logs.
struct Weighted : LightningModule {
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
    const at::Tensor loss = net->loss(batch);
    set_loss_weight(static_cast<double>(1 + batch_idx % 3));
    log("train_loss", loss);
    return loss;
  }
  void validation_step(const Batch& batch, int64_t) override {
    EXPECT_FALSE(is_training());
    EXPECT_FALSE(at::GradMode::is_enabled());
    log("val_loss", net->loss(batch));
  }
  at::Tensor forward(const at::Tensor& x) override { return net->layers->forward(x); }
  OptimizerConfig configure_optimizers() override {
    OptimizerConfig config = SGD(parameters(), {.lr = 0.1, .momentum = 0.9});
    config.schedule(StepLR({.step_size = 1, .gamma = 0.5}));  // by epochs
    return config;
  }
  std::shared_ptr<FabricNet> net = register_module("net", std::make_shared<FabricNet>());
};

void train(Fabric& fabric) {
  UnsizedLoader loader(tiny_loader(40), /*read_ahead=*/false);
  for (int64_t epoch = fabric.current_epoch(); epoch < kEpochs; ++epoch) {
    loader.start(epoch, 0);
    for (Batch batch; loader.next(batch);) (void)fabric.step(batch);
    fabric.end_epoch();
  }
}

TEST(FabricModule, StepAndEndEpochEndAtTheTrainersWeights) {
  Weighted by_trainer;
  TrainerOptions options = quiet(kEpochs, {});
  options.accumulate_grad_batches = 4;
  options.gradient_clip_val = 0.05;
  Trainer(options).fit(by_trainer, std::make_shared<UnsizedLoader>(tiny_loader(40), /*read_ahead=*/false));

  Weighted by_fabric;
  Fabric fabric({.accumulate_grad_batches = 4, .gradient_clip_val = 0.05, .num_threads = 1});
  (void)fabric.setup(by_fabric, by_fabric.configure_optimizers());
  train(fabric);
  expect_equal_weights(by_fabric.parameters(), by_trainer.parameters());
  EXPECT_EQ(fabric.current_epoch(), kEpochs);
}

TEST(FabricModule, LoggedValuesAreThoseOfTheLastStep) {
  Weighted module;
  Fabric fabric({.num_threads = 1});
  (void)fabric.setup(module, module.configure_optimizers());
  const double expected = module.net->loss(fixed_batch()).item().toDouble();
  (void)fabric.step(fixed_batch());
  EXPECT_EQ(fabric.callback_metrics().at("train_loss"), expected);
  fabric.log("height", 2.5);
  EXPECT_EQ(fabric.callback_metrics().at("height"), 2.5);
}

TEST(FabricModule, ValuesThatAreLoggedOnEpochAloneAreThoseOfTheLastStepToo) {
  struct OnEpoch : Weighted {
    at::Tensor training_step(const Batch& batch, int64_t) override {
      const at::Tensor loss = net->loss(batch);
      log("epoch_loss", loss, {.on_step = false, .on_epoch = true});
      return loss;
    }
  } module;
  Fabric fabric({.num_threads = 1});
  (void)fabric.setup(module, module.configure_optimizers());
  for (int k = 0; k < 2; ++k) {
    const double expected = module.net->loss(fixed_batch()).item().toDouble();
    (void)fabric.step(fixed_batch());
    EXPECT_EQ(fabric.callback_metrics().at("epoch_loss"), expected);
  }
}

TEST(FabricModule, EvaluatesAndPredictsWithoutTraining) {
  Weighted module;
  Fabric fabric({.num_threads = 1});
  (void)fabric.setup(module, module.configure_optimizers());
  const auto before = module.net->layers->forward(fixed_batch()[0]).detach();
  const Metrics metrics = fabric.evaluate(fixed_batch());
  EXPECT_EQ(metrics.at("val_loss"), module.net->loss(fixed_batch()).item().toDouble());
  EXPECT_EQ(fabric.callback_metrics().at("val_loss"), metrics.at("val_loss"));
  const at::Tensor prediction = fabric.predict(fixed_batch());
  EXPECT_TRUE(at::equal(prediction, before));
  EXPECT_FALSE(prediction.requires_grad());
  EXPECT_TRUE(module.is_training());
}

TEST(FabricModule, AnEvaluationInsideAWindowChangesNoWeight) {
  Weighted plain;
  Weighted evaluated;
  for (Weighted* module : {&plain, &evaluated}) {
    Fabric fabric({.accumulate_grad_batches = 2, .num_threads = 1});
    (void)fabric.setup(*module, module->configure_optimizers());
    (void)fabric.step(fixed_batch());
    if (module == &evaluated) (void)fabric.evaluate(fixed_batch());
    (void)fabric.step(fixed_batch());
  }
  expect_equal_weights(evaluated.parameters(), plain.parameters());
}

TEST(FabricModule, WrongUsesNameTheCall) {
  FabricNet net;
  Fabric none({.num_threads = 1});
  (void)none.setup(net, SGD(net.parameters()));
  EXPECT_TRUE(holds(error_of([&] { (void)none.step(fixed_batch()); }),
                    {"Fabric.step: it calls a step of the LightningModule", "none was"}));
  EXPECT_TRUE(holds(error_of([&] { (void)none.evaluate(fixed_batch()); }), {"Fabric.evaluate: ", "none was"}));

  Weighted manual;
  manual.set_automatic_optimization(false);
  Fabric with_manual({.num_threads = 1});
  (void)with_manual.setup(manual, manual.configure_optimizers());
  EXPECT_TRUE(
      holds(error_of([&] { (void)with_manual.step(fixed_batch()); }), {"manual optimization", "Use a Trainer"}));

  Fabric in_pass({.num_threads = 1});
  Weighted module;
  (void)in_pass.setup(module, module.configure_optimizers());
  FabricLoader loader = in_pass.setup_dataloaders(tiny_loader(8));
  for (const Batch& batch : loader.epoch(0)) {
    (void)in_pass.step(batch);
    EXPECT_TRUE(holds(error_of([&] { in_pass.end_epoch(); }), {"Fabric.end_epoch: a pass over a loader is open"}));
  }
}

}  // namespace
}  // namespace levin::fabric_module_test
