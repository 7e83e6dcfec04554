// A residual network (He et al. 2015) for small images, such as 28 x 28. `levin` trains it as class_path: ResNet.
//
// Shapes: B batch, C channels.
#pragma once

#include "levin/levin.h"

struct ResNetOptions {
  int64_t in_channels = 1;
  int64_t width = 16;                       // channels of the first stage; each later stage has twice as many
  int64_t first_stride = 1;                 // stride of the first convolution; 2 takes a third of the time
  std::vector<int64_t> blocks = {1, 1, 1};  // blocks of each stage; the image is halved between stages
  int64_t num_classes = 10;
  double label_smoothing = 0.0;
  double stochastic_depth = 0.0;  // drop rate of the last block; smaller towards the first
  double lr = 0.1;                // the peak of one cycle over the complete run
  double momentum = 0.9;
  double weight_decay = 5e-4;  // of convolutions and the last layer; norms and biases have none

  template <class = void>
  static auto fields() {
    using O = ResNetOptions;
    const auto are_positive = [](const std::vector<int64_t>& counts) {
      return !counts.empty() && std::all_of(counts.begin(), counts.end(), [](int64_t n) { return n >= 1; });
    };
    return levin::fields(
        levin::field("in_channels", &O::in_channels, "channels of the images").min(1),
        levin::field("width", &O::width, "channels of the first stage; doubled by each later one").min(1),
        levin::field("first_stride", &O::first_stride, "of the first convolution: 2 halves the image").min(1).max(4),
        levin::field("blocks", &O::blocks, "of two convolutions, per stage; images are halved between stages")
            .check(are_positive, "a list of numbers >= 1"),
        levin::field("num_classes", &O::num_classes, "classes").min(2),
        levin::field("label_smoothing", &O::label_smoothing, "share of the target spread over all classes")
            .min(0.0)
            .below(1.0),
        levin::field("stochastic_depth", &O::stochastic_depth,
                     "how often the last block is left out in training; earlier ones less often")
            .min(0.0)
            .below(1.0),
        levin::field("lr", &O::lr, "SGD's largest step size: one cycle over the complete run").above(0.0),
        levin::field("momentum", &O::momentum, "of SGD, Nesterov's").above(0.0).below(1.0),
        levin::field("weight_decay", &O::weight_decay, "of convolutions and the last layer").min(0.0));
  }
};

/// relu(shortcut(x) + two convolutions with norms), which are left out with probability `drop` in training.
class ResNetBlockImpl : public torch::nn::Module {
 public:
  ResNetBlockImpl(int64_t in, int64_t out, int64_t stride, double drop = 0);
  torch::Tensor forward(const torch::Tensor& x);  // (B, in, h, w) to (B, out, h / stride, w / stride)

 private:
  double drop_ = 0;
  torch::nn::Sequential body_{nullptr};
  torch::nn::Sequential shortcut_{nullptr};  // null: x itself
};
TORCH_MODULE(ResNetBlock);

class ResNet : public levin::LightningModule {
 public:
  using Options = ResNetOptions;
  explicit ResNet(ResNetOptions options = {});

  /// images: (B, C, h, w) float; returns logits (B, num_classes).
  torch::Tensor forward(const torch::Tensor& images) override;
  torch::Tensor training_step(const levin::Batch& batch) override;
  void validation_step(const levin::Batch& batch) override;
  void test_step(const levin::Batch& batch) override;
  /// The most likely class of each image: (B) int64.
  torch::Tensor predict_step(const levin::Batch& batch) override;
  /// SGD in two groups, and one cycle of the learning rate over the whole run.
  levin::OptimizerConfig configure_optimizers() override;

 private:
  void evaluate(const levin::Batch& batch, const std::string& stage);

  ResNetOptions options_;
  torch::nn::Sequential net_{nullptr};
};
