// What predict_step publishes, as the caller of predict gets it.
#include "levin/trainer/predict_outputs.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/lambda_callback.h"
#include "support/parted_module.h"

namespace levin::predict_outputs_test {
namespace {

using namespace test;

/// Predicts classes; publishes scores and their mean.
struct Net : PartedModule {
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>&) const override {
    auto other = std::make_shared<Net>();
    other->returns = returns;
    return other;
  }
  at::Tensor predict_step(const Batch& batch, int64_t batch_idx) override {
    if (batch_idx == fails_at) throw Error("no prediction");
    const at::Tensor scores = forward(batch[0]);
    step_output("scores", scores);
    step_output("mean", scores.mean());
    return returns ? scores.argmax(1) : at::Tensor();
  }
  bool returns = true;
  int64_t fails_at = -1;
};

/// The scores of all samples of `classes`, computed without a trainer.
at::Tensor scores_of(Net& module, int64_t samples) {
  const torch::NoGradGuard no_gradients;
  module.eval();
  Batch all;
  const auto loader = classes(samples, samples);
  loader->start(0, 0);
  EXPECT_TRUE(loader->next(all));
  return module.forward(all[0]);
}

void expect_whole(const PredictedOutputs& results, Net& module, bool returns = true) {
  ASSERT_EQ(results.size(), 1U);
  ASSERT_EQ(results[0].size(), 3U);  // 22 samples by 8
  std::vector<at::Tensor> scores, predictions;
  for (const PredictedBatch& batch : results[0]) {
    scores.push_back(batch["scores"]);
    predictions.push_back(batch.prediction);
    EXPECT_TRUE(torch::allclose(batch["mean"], batch["scores"].mean(), 1e-4, 1e-5));
    EXPECT_TRUE(batch["scores"].is_cpu());
    EXPECT_FALSE(batch["scores"].requires_grad());
  }
  const at::Tensor expected = scores_of(module, 22);
  EXPECT_TRUE(torch::allclose(torch::cat(scores), expected, 1e-4, 1e-5));
  if (returns) {
    EXPECT_TRUE(torch::cat(predictions).equal(expected.argmax(1)));
  } else {
    EXPECT_FALSE(predictions[0].defined());
  }
}

TEST(PredictOutputs, AreWhatPredictStepReturnsAndPublishesOfEachBatch) {
  Net module;
  Trainer trainer(quiet(1, {}));
  expect_whole(predict_outputs(trainer, module, classes(22, 8)), module);
}

TEST(PredictOutputs, HaveEachBatchThatPublishesOnly) {
  Net module;
  module.returns = false;
  Trainer trainer(quiet(1, {}));
  expect_whole(predict_outputs(trainer, module, classes(22, 8)), module, /*returns=*/false);
  EXPECT_TRUE(trainer.predict(module, classes(22, 8))[0].empty());
}

TEST(PredictOutputs, AreByLoader) {
  Net module;
  Trainer trainer(quiet(1, {}));
  const PredictedOutputs results = predict_outputs(trainer, module, Loaders{classes(16, 8), classes(4, 4)});
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[0].size(), 2U);
  ASSERT_EQ(results[1].size(), 1U);
  EXPECT_EQ(results[1][0]["scores"].size(0), 4);
}

TEST(PredictOutputs, TakeADataModuleThatIsMadeInTheCall) {
  struct Data : DataModule {
    Loaders predict_dataloader() override { return classes(22, 8); }
  };
  Net module;
  Trainer trainer(quiet(1, {}));
  expect_whole(predict_outputs(trainer, module, Data()), module);
  Data data;
  expect_whole(predict_outputs(trainer, module, data, ""), module);
}

TEST(PredictOutputs, OfReplicasAreWholeBatches) {
  for (const char* strategy : {"dp", "dp_balanced"}) {
    Net module;
    TrainerOptions options = quiet(1, {});
    options.strategy = strategy;
    options.devices = 3;
    Trainer trainer(options);
    expect_whole(predict_outputs(trainer, module, classes(22, 8)), module);
  }
}

// A replay writes to the memory of the one before.
TEST(PredictOutputs, OfRecordedStepsBelongToEachBatch) {
  Net module;
  TrainerOptions options = quiet(1, {});
  options.record_steps = true;
  Trainer trainer(options);
  const PredictedOutputs results = predict_outputs(trainer, module, classes(96, 8));
  ASSERT_EQ(results[0].size(), 12U);
  std::vector<at::Tensor> scores;
  for (const PredictedBatch& batch : results[0]) scores.push_back(batch["scores"]);
  EXPECT_TRUE(torch::allclose(torch::cat(scores), scores_of(module, 96), 1e-4, 1e-5));
}

TEST(PredictOutputs, NameWhatWasPublished) {
  Net module;
  Trainer trainer(quiet(1, {}));
  const PredictedOutputs results = predict_outputs(trainer, module, classes(8, 8));
  EXPECT_TRUE(holds(error_of<Error>([&] { (void)results[0][0]["score"]; }),
                    {"no \"score\"", "Did you mean \"scores\"?", "scores, mean"}));
}

TEST(PredictOutputs, AreNoLongerTakenAfterAFailure) {
  Net module;
  module.fails_at = 1;
  Trainer trainer(quiet(1, {}));
  EXPECT_THROW((void)predict_outputs(trainer, module, classes(22, 8)), Error);
  module.fails_at = -1;
  EXPECT_EQ(trainer.predict(module, classes(22, 8))[0].size(), 3U);
}

TEST(PredictOutputs, SurviveARefusedCallFromAHook) {
  Net module;
  std::string refused;
  Trainer trainer(quiet(1, {LambdaCallback({.on_predict_start = [&](Trainer& running, LightningModule&) {
                          refused = error_of<Error>([&] { (void)predict_outputs(running, module, classes(8, 8)); });
                        }})}));
  expect_whole(predict_outputs(trainer, module, classes(22, 8)), module);
  EXPECT_TRUE(holds(refused, {"Trainer::predict was called in", "on_predict_start"}));
}

}  // namespace
}  // namespace levin::predict_outputs_test
