// Steps that are overridden without the batch's index.
#include <gtest/gtest.h>

#include "callbacks/quiet_trainer.h"
#include "support/tiny_module.h"

namespace levin::steps_without_index_test {
namespace {

using namespace test;

/// TinyModule's steps, each without the batch's index.
struct WithoutIndex : LightningModule {
  WithoutIndex() {
    const torch::NoGradGuard no_grad;
    layer->weight.copy_(torch::tensor({{0.01F, 0.02F, 0.03F, 0.04F}}));
    layer->bias.zero_();
  }
  at::Tensor training_step(const Batch& batch) override { return loss(batch); }
  void validation_step(const Batch& batch) override { log("val_loss", loss(batch)); }
  void test_step(const Batch& batch) override { log("test_loss", loss(batch)); }
  at::Tensor predict_step(const Batch& batch) override { return 2 * layer->forward(batch[0]); }
  OptimizerConfig configure_optimizers() override { return SGD(parameters(), {.lr = 0.1}); }

  at::Tensor loss(const Batch& batch) { return torch::mse_loss(layer->forward(batch[0]), batch[1]); }
  torch::nn::Linear layer{register_module("layer", torch::nn::Linear(4, 1))};
};

/// Overrides the form with an index of a class that overrides the form without.
struct WithIndexAgain : WithoutIndex {
  using WithoutIndex::training_step;
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
    indices.push_back(batch_idx);
    return WithoutIndex::training_step(batch);
  }
  std::vector<int64_t> indices = {};
};

TEST(StepsWithoutIndex, TrainAndEvaluateLikeStepsWithOne) {
  WithoutIndex without;
  TinyModule with;
  Trainer trainer(quiet(2, {})), same(quiet(2, {}));
  trainer.fit(without, tiny_loader(24), tiny_loader(8));
  same.fit(with, tiny_loader(24), tiny_loader(8));
  EXPECT_TRUE(without.layer->weight.equal(with.layer->weight));
  EXPECT_EQ(trainer.callback_metrics().at("val_loss"), same.callback_metrics().at("val_loss"));
  EXPECT_EQ(trainer.test(without, tiny_loader(8)), same.test(with, tiny_loader(8)));
  const Predictions doubled = trainer.predict(without, tiny_loader(8)), plain = same.predict(with, tiny_loader(8));
  ASSERT_EQ(doubled[0].size(), 2U);
  EXPECT_TRUE(doubled[0][1].equal(2 * plain[0][1]));
}

TEST(StepsWithoutIndex, ADerivedClassMayOverrideTheFormWithAnIndex) {
  WithIndexAgain again;
  WithoutIndex without;
  Trainer(quiet(1, {})).fit(again, tiny_loader(12));
  Trainer(quiet(1, {})).fit(without, tiny_loader(12));
  EXPECT_EQ(again.indices, (std::vector<int64_t>{0, 1, 2}));
  EXPECT_TRUE(again.layer->weight.equal(without.layer->weight));
}

}  // namespace
}  // namespace levin::steps_without_index_test
