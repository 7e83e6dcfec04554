#include "models/articles/thousand_layers.h"

#include <gtest/gtest.h>

#include "models/articles/paddle_mlp.h"

namespace levin::thousand_layers_test {
namespace {

int64_t count(const torch::nn::Module& model) {
  int64_t all = 0;
  for (const auto& parameter : model.parameters()) all += parameter.numel();
  return all;
}

TEST(ThousandLayers, IsAChainOfSoManyLinearLayers) {
  const ThousandLayers model({.layers = 20, .width = 8, .in_features = 5, .num_classes = 3});
  EXPECT_EQ(count(model), (5 * 8 + 8) + 20 * (8 * 8 + 8) + (8 * 3 + 3));
  EXPECT_EQ(model.named_children()["layers"]->children().size(), 20U);
}

// Orthogonal weights: neither a signal nor its gradient vanishes or grows on the way through all layers.
TEST(ThousandLayers, ASignalAndItsGradientKeepTheirLength) {
  torch::manual_seed(1);
  ThousandLayers model({.layers = 1000, .width = 16});
  auto layers = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(model.named_children()["layers"]);
  const auto x = torch::randn({4, 16}).requires_grad_();
  const auto y = layers->forward(x);
  EXPECT_TRUE(torch::allclose(y.norm(2, 1), x.norm(2, 1), 1e-3, 0));
  const auto gradient = torch::randn({4, 16});
  y.backward(gradient);
  EXPECT_TRUE(torch::allclose(x.grad().norm(2, 1), gradient.norm(2, 1), 1e-3, 0));
}

TEST(PaddleMlp, HasTheLayersThatItsRunFileNames) {
  PaddleMlp model({.in_features = 6, .hidden = 4, .num_classes = 3});
  const auto net = model.named_children()["net"];
  for (const char* name : {"fc_1", "relu_1", "fc_2", "relu_2", "fc_3", "relu_3", "pred"}) {
    EXPECT_NE(net->named_children().find(name), nullptr) << name;
  }
  EXPECT_EQ(model.forward(torch::zeros({2, 2, 3})).sizes(), (std::vector<int64_t>{2, 3}));
}

}  // namespace
}  // namespace levin::thousand_layers_test
