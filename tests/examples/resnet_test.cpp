#include "models/resnet.h"

#include <gtest/gtest.h>

#include "support/captured_console.h"

namespace levin::resnet_test {
namespace {

int64_t count(const ResNet& model) {
  int64_t all = 0;
  for (const auto& parameter : model.parameters()) all += parameter.numel();
  return all;
}

// A convolution has in * out * k * k weights, a norm two numbers a channel.
TEST(ResNet, IsMadeOfBlocksOfTwoConvolutions) {
  const auto conv = [](int64_t in, int64_t out, int64_t k) { return in * out * k * k + 2 * out; };
  ResNetOptions options;
  options.width = 4;
  options.blocks = {2, 1};
  ResNet model(options);
  const int64_t expected =
      conv(1, 4, 3) + 2 * 2 * conv(4, 4, 3) + conv(4, 8, 3) + conv(8, 8, 3) + conv(4, 8, 1) + 8 * 10 + 10;
  EXPECT_EQ(count(model), expected);
  EXPECT_EQ(model.forward(torch::zeros({3, 1, 28, 28})).sizes(), (std::vector<int64_t>{3, 10}));
}

// The last norm of each block starts at zero: a block of the same width passes on what it gets.
TEST(ResNet, BlocksStartAsTheIdentity) {
  ResNetBlock block(4, 4, 1);
  const auto x = torch::rand({2, 4, 6, 6});
  EXPECT_TRUE(torch::equal(block->forward(x), x));
  ResNetBlock halving(4, 8, 2);
  EXPECT_EQ(halving->forward(x).sizes(), (std::vector<int64_t>{2, 8, 3, 3}));
}

// Two bars in one of four places: too hard for chance, easy for a convolution.
TEST(ResNet, LearnsToTellBarsApart) {
  const test::CapturedConsole quiet;
  torch::set_num_threads(1);  // a model this small only waits for more
  seed_everything(5);
  const auto y = torch::arange(256) % 4;
  auto x = torch::rand({256, 1, 12, 12}) * 0.5;
  for (int64_t i = 0; i < 256; ++i) {
    auto image = x[i][0];
    const int64_t place = (i * 7) % 9;
    (i % 4 < 2 ? image.narrow(0, place, 1 + i % 2) : image.narrow(1, place, 1 + i % 2)).fill_(1);
  }
  ResNetOptions options;
  options.width = 8;
  options.blocks = {1, 1};
  options.num_classes = 4;
  ResNet model(options);
  const auto data = std::make_shared<TensorDataset>(std::vector<torch::Tensor>{x, y});
  Trainer trainer(TrainerOptions{.max_epochs = 8, .logger = false, .enable_checkpointing = false});
  trainer.fit(model, std::make_shared<DataLoader>(data, DataLoaderOptions{.batch_size = 16, .shuffle = true}),
              std::make_shared<DataLoader>(data, DataLoaderOptions{.batch_size = 64}));
  EXPECT_GT(trainer.callback_metrics().at("val_acc"), 0.95);
  const auto& groups = trainer.optimizers()[0].optimizer().param_groups();
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_GT(groups[0].weight_decay, 0.0);
  EXPECT_EQ(groups[1].weight_decay, 0.0);
}

}  // namespace
}  // namespace levin::resnet_test
