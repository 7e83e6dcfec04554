// Weights in float64, float16 or bfloat16 (64-true, 16-true, bf16-true): weights of a checkpoint reach the module
// exactly as saved, not by way of the float32 that the module was made in.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/levin.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::own_precision_test {
namespace {

using test::TemporaryFolder;
using test::tiny_loader;

// Weights that float32 cannot hold, and a buffer; dropout, so that random numbers count.
class DoubleNet : public LightningModule {
 public:
  DoubleNet() {
    register_module("layers", layers);
    register_buffer("seen", seen);
  }
  at::Tensor training_step(const Batch& batch, int64_t) override {
    const at::Tensor x = batch[0].to(layers->parameters()[0].scalar_type());
    const at::Tensor loss = torch::mse_loss(layers->forward(x), batch[1].to(x.scalar_type()));
    const torch::NoGradGuard no_grad;
    seen.mul_(0.9).add_(loss.detach());
    return loss;
  }
  void test_step(const Batch& batch, int64_t) override { training_step(batch, 0); }
  void validation_step(const Batch& batch, int64_t) override { training_step(batch, 0); }
  OptimizerConfig configure_optimizers() override { return Adam(parameters(), {.lr = 0.01}); }

  torch::nn::Sequential layers{torch::nn::Linear(4, 8), torch::nn::Tanh(), torch::nn::Dropout(0.3),
                               torch::nn::Linear(8, 1)};
  at::Tensor seen = torch::zeros({1});
};

std::map<std::string, at::Tensor> weights_of(const DoubleNet& net) {
  std::map<std::string, at::Tensor> all;
  for (const auto& item : net.named_parameters()) all[item.key()] = item.value().detach().clone();
  for (const auto& item : net.named_buffers()) all[item.key()] = item.value().detach().clone();
  return all;
}

void expect_same_bits(const std::map<std::string, at::Tensor>& expected,
                      const std::map<std::string, at::Tensor>& actual, at::ScalarType type) {
  ASSERT_EQ(expected.size(), actual.size());
  for (const auto& [name, tensor] : expected) {
    EXPECT_EQ(tensor.scalar_type(), type) << name;
    EXPECT_TRUE(torch::equal(tensor, actual.at(name))) << name;
  }
}

class OwnPrecision : public ::testing::TestWithParam<std::pair<const char*, at::ScalarType>> {
 protected:
  TrainerOptions options_of(int64_t epochs) const {
    TrainerOptions all;
    all.precision = GetParam().first;
    all.logger = false;
    all.max_epochs = epochs;
    all.enable_progress_bar = false;
    all.enable_model_summary = false;
    all.enable_checkpointing = false;
    all.default_root_dir = folder.path();
    return all;
  }

  TemporaryFolder folder;
};

TEST_P(OwnPrecision, AStoppedRunEndsBitwiseIdenticalToAnUninterruptedOne) {
  seed_everything(3);
  DoubleNet whole;
  Trainer(options_of(2)).fit(whole, tiny_loader(24));
  seed_everything(3);
  DoubleNet first;
  Trainer half(options_of(1));
  half.fit(first, tiny_loader(24));
  half.save_checkpoint(folder / "a.ckpt");
  seed_everything(4);  // a separate process
  DoubleNet second;
  Trainer(options_of(2)).fit(second, tiny_loader(24), {}, folder / "a.ckpt");
  expect_same_bits(weights_of(whole), weights_of(second), GetParam().second);
}

TEST_P(OwnPrecision, TestAndValidateSeeTheWeightsThatWereSaved) {
  seed_everything(3);
  DoubleNet net;
  Trainer trainer(options_of(1));
  trainer.fit(net, tiny_loader(24));
  trainer.save_checkpoint(folder / "a.ckpt");
  const State saved = read_checkpoint(folder / "a.ckpt").part("model");
  for (const bool validates : {false, true}) {
    DoubleNet other;
    Trainer evaluator(options_of(1));
    if (validates) (void)evaluator.validate(other, Loaders{tiny_loader(4)}, folder / "a.ckpt");
    if (!validates) (void)evaluator.test(other, Loaders{tiny_loader(4)}, folder / "a.ckpt");
    for (const auto& item : other.named_parameters()) {
      EXPECT_EQ(item.value().scalar_type(), GetParam().second) << item.key();
      EXPECT_TRUE(torch::equal(item.value(), saved.tensor(item.key()))) << item.key();
    }
  }
}

// Weights from other files too: values that float32 cannot represent arrive.
TEST_P(OwnPrecision, LoadedWeightsArriveWhole) {
  seed_everything(3);
  DoubleNet net;
  Trainer(options_of(1)).fit(net, tiny_loader(24));
  Trainer trainer(options_of(1));
  State state;
  for (const auto& [name, tensor] : weights_of(net)) state.tensors["model." + name] = tensor;
  state.set("weights_only", true);
  write_checkpoint(folder / "w.ckpt", state);
  DoubleNet other;
  trainer.start_from({.path = folder / "w.ckpt"});
  (void)trainer.validate(other, Loaders{tiny_loader(4)});
  for (const auto& item : other.named_parameters()) {
    EXPECT_TRUE(torch::equal(item.value(), state.tensor("model." + item.key()))) << item.key();
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, OwnPrecision,
                         ::testing::Values(std::pair{"64-true", at::kDouble}, std::pair{"16-true", at::kHalf},
                                           std::pair{"bf16-true", at::kBFloat16}),
                         [](const auto& one) { return std::string(c10::toString(one.param.second)); });

}  // namespace
}  // namespace levin::own_precision_test
