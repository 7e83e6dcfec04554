// Predictions: the Trainer's values, on many threads, in every precision; and what goes wrong.
#include "levin/inference/inference_model.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <thread>

#include "inference/served_net.h"
#include "levin/inference/load_for_inference.h"
#include "levin/levin.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace levin::inference_model_test {
namespace {

using test::error_of;
using test::holds;
using test::quiet_run;
using test::ServedNet;
using test::some_rows;
using test::TemporaryFolder;
using test::tiny_loader;

class Precisions : public ::testing::TestWithParam<const char*> {
 protected:
  // Trains with the precision and predicts by the Trainer, batch by batch.
  void SetUp() override {
    test::register_served_net();
    seed_everything(1);
    const auto module = Registry<LightningModule>::instance().make({"ServedNet", {}, {}}, "model");
    TrainerOptions options = quiet_run(folder);
    options.precision = GetParam();
    Trainer trainer(options);
    trainer.fit(*module, tiny_loader(24));
    trainer.save_checkpoint(folder / "a.ckpt");
    for (int64_t k = 0; k < kBatches; ++k) batches.push_back(some_rows(5 + k, static_cast<uint64_t>(k)));
    for (const at::Tensor& batch : batches) {
      const auto loader = std::make_shared<test::TensorLoader>(std::vector<at::Tensor>{batch}, batch.size(0));
      expected.push_back(trainer.predict(*module, Loaders{loader})[0][0]);
    }
  }

  static constexpr int64_t kBatches = 8;
  TemporaryFolder folder;
  std::vector<at::Tensor> batches, expected;
};

TEST_P(Precisions, PredictIsBitwiseIdenticalToTheTrainer) {
  const InferenceModel model = load_for_inference(folder / "a.ckpt", {.device = "cpu"});
  EXPECT_EQ(model.precision(), GetParam());
  for (size_t k = 0; k < batches.size(); ++k) {
    const at::Tensor prediction = model.predict(batches[k]);
    EXPECT_EQ(prediction.scalar_type(), expected[k].scalar_type());
    EXPECT_TRUE(prediction.equal(expected[k])) << prediction << expected[k];
    EXPECT_FALSE(prediction.requires_grad());
  }
}

TEST_P(Precisions, EightThreadsAreBitwiseIdenticalToOne) {
  const InferenceModel model = load_for_inference(folder / "a.ckpt", {.device = "cpu"});
  std::atomic<int> differing = 0, compared = 0;
  {
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        for (size_t n = 0; n < 200; ++n) {
          const size_t k = (n + t) % batches.size();
          if (!model.predict(batches[k]).equal(expected[k])) ++differing;
          ++compared;
        }
      });
    }
  }
  EXPECT_EQ(compared, 1600);
  EXPECT_EQ(differing, 0);
  EXPECT_EQ(c10::get_default_dtype(), caffe2::TypeMeta::Make<float>());
}

INSTANTIATE_TEST_SUITE_P(Inference, Precisions, ::testing::Values("32-true", "64-true", "bf16-mixed", "bf16-true"),
                         [](const auto& one) {
                           std::string name = one.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Two models whose default types differ, on threads of each.
TEST(InferenceModel, ModelsOfSeveralPrecisionsMayPredictAtOnce) {
  test::register_served_net();
  std::vector<InferenceModel> models;
  std::vector<at::Tensor> expected;
  const at::Tensor x = some_rows(6);
  for (const char* precision : {"32-true", "64-true", "bf16-true"}) {
    torch::manual_seed(2);
    const auto module = std::make_shared<ServedNet>();
    const auto format = Registry<Precision>::instance().make({precision, {}, {}}, "precision");
    if (const auto dtype = format->dtype()) module->to(*dtype);
    models.emplace_back(module, format);
    expected.push_back(models.back().predict(x));
  }
  EXPECT_EQ(expected[1].scalar_type(), at::kDouble);
  EXPECT_EQ(expected[2].scalar_type(), at::kBFloat16);
  std::atomic<int> differing = 0;
  {
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < 6; ++t) {
      threads.emplace_back([&, t] {
        for (int n = 0; n < 100; ++n) {
          const at::Tensor found = models[t % 3].predict(x);
          if (found.scalar_type() != expected[t % 3].scalar_type() || !found.equal(expected[t % 3])) ++differing;
        }
      });
    }
  }
  EXPECT_EQ(differing, 0);
}

TEST(InferenceModel, LevinsOwnModelsPredictOnManyThreads) {
  const std::string data = test::source_dir() + "/tests/models/data/";
  const at::Tensor ids = torch::arange(12).view({2, 6});
  const std::vector<std::pair<InferenceModel, at::Tensor>> cases{
      {InferenceModel(std::make_shared<ExportedModule>(ExportedModuleOptions{.path = data + "mlp.pt2"})),
       torch::arange(48, at::kFloat).view({12, 4}) / 10},
      // Its training draws random paths and noise, and changes buffers.
      {InferenceModel(std::make_shared<ExportedModule>(ExportedModuleOptions{.path = data + "modes.pt2"})),
       torch::arange(48, at::kFloat).view({12, 4}) / 10},
      {InferenceModel(std::make_shared<HuggingFaceLM>(HuggingFaceLMOptions{.path = data + "gpt2"})), ids},
      {InferenceModel(std::make_shared<HuggingFaceClassifier>(
           HuggingFaceClassifierOptions{.path = data + "bert", .num_labels = 3, .ignore_mismatched_sizes = true})),
       ids}};
  for (const auto& [model, batch] : cases) {
    const at::Tensor expected = model.predict(batch);
    std::atomic<int> differing = 0;
    {
      std::vector<std::jthread> threads;
      for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
          for (int n = 0; n < 50; ++n) differing += model.predict(batch).equal(expected) ? 0 : 1;
        });
      }
    }
    EXPECT_EQ(differing, 0) << model.module().name();
  }
}

// Hooks of the module, in the order of the Trainer.
class Hooked : public LightningModule {
 public:
  Batch on_before_batch_transfer(Batch batch, int64_t) override {
    batch[0] = batch[0] + 1;
    return batch;
  }
  Batch on_after_batch_transfer(Batch batch, int64_t) override {
    batch[0] = batch[0] * 2;
    return batch;
  }
  at::Tensor predict_step(const Batch& batch, int64_t batch_idx) override { return batch[0] + batch_idx; }
};

TEST(InferenceModel, CallsTheModulesTransferHooksAndLeavesTheCallersBatch) {
  const InferenceModel model(std::make_shared<Hooked>());
  const Batch batch{torch::tensor({1.0F, 2.0F})};
  EXPECT_TRUE(model.predict(batch).equal(torch::tensor({4.0F, 6.0F})));
  EXPECT_TRUE(batch[0].equal(torch::tensor({1.0F, 2.0F})));
}

class Named : public LightningModule {
 public:
  at::Tensor predict_step(const Batch& batch, int64_t) override { return batch["x"] - batch["y"]; }
};

TEST(InferenceModel, TakesNamedBatches) {
  const InferenceModel model(std::make_shared<Named>());
  EXPECT_TRUE(model.predict(Batch{{"y", torch::ones({2})}, {"x", torch::full({2}, 3.0)}}).equal(torch::full({2}, 2.0)));
}

TEST(InferenceModel, TurnsGradientsAndTrainingOff) {
  const auto module = std::make_shared<ServedNet>();
  module->forward(some_rows(4)).sum().backward();
  ASSERT_TRUE(module->parameters()[0].grad().defined());
  const InferenceModel model(module);
  for (const at::Tensor& parameter : module->parameters()) {
    EXPECT_FALSE(parameter.requires_grad());
    EXPECT_FALSE(parameter.grad().defined());
  }
  for (const auto& layer : module->modules()) EXPECT_FALSE(layer->is_training()) << layer->name();
  EXPECT_EQ(&model.module(), module.get());
  EXPECT_EQ(model.device(), at::kCPU);
  EXPECT_EQ(model.precision(), "32-true");
}

class AsksTrainer : public LightningModule {
 public:
  at::Tensor predict_step(const Batch& batch, int64_t) override {
    return batch[0] * static_cast<double>(trainer().current_epoch());
  }
};

TEST(InferenceModel, WhatIsWrongWithABatchIsReportedWithItsShapes) {
  const InferenceModel model(std::make_shared<ServedNet>());
  const std::string shape = error_of<Error>([&] { (void)model.predict(torch::ones({2, 3})); });
  EXPECT_TRUE(holds(shape, {"predict: ServedNet failed for a batch of (2, 3) Float: ", "mat1 and mat2 shapes"}));
  EXPECT_EQ(shape.find("Exception raised from"), std::string::npos) << shape;  // LibTorch's stack
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      (void)model.predict(torch::ones({2, 4}, at::kLong));
                    }),
                    {"ServedNet failed for a batch of (2, 4) Long: "}));
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      (void)model.predict(Batch{torch::ones({2, 4}), at::Tensor()});
                    }),
                    {"an undefined tensor: (2, 4) Float, undefined"}));
  EXPECT_NE(error_of<Error>([&] { (void)model.predict(Batch()); }), "");
  EXPECT_EQ(model.predict(torch::ones({2, 4})).sizes(), at::IntArrayRef({2, 3}));
  const InferenceModel asks(std::make_shared<AsksTrainer>());
  EXPECT_TRUE(holds(error_of<Error>([&] { (void)asks.predict(torch::ones({2})); }), {"not attached to a Trainer"}));
  EXPECT_TRUE(holds(error_of<Error>([] { const InferenceModel none(nullptr); }), {"the module is null"}));
}

}  // namespace
}  // namespace levin::inference_model_test
