// An image classifier: a multilayer perceptron, or a small convolutional net. `levin` trains it as class_path:
// Classifier.
#pragma once

#include "levin/levin.h"

struct ClassifierOptions {
  std::string arch = "mlp";
  int64_t hidden = 256;
  int64_t num_classes = 10;
  double dropout = 0.0;
  double label_smoothing = 0.0;
  double lr = 1e-3;
  double weight_decay = 0.01;

  template <class = void>
  static auto fields() {
    using O = ClassifierOptions;
    return levin::fields(
        levin::field("arch", &O::arch, "mlp: one hidden layer; cnn: two convolutions")
            .check([](const std::string& a) { return a == "mlp" || a == "cnn"; }, "mlp or cnn"),
        levin::field("hidden", &O::hidden, "units of the hidden layer").min(1),
        levin::field("num_classes", &O::num_classes, "classes").min(2),
        levin::field("dropout", &O::dropout, "share of hidden units dropped while training").min(0.0).below(1.0),
        levin::field("label_smoothing", &O::label_smoothing, "share of the target spread over all classes")
            .min(0.0)
            .below(1.0),
        levin::field("lr", &O::lr, "AdamW's step size").above(0.0),
        levin::field("weight_decay", &O::weight_decay, "AdamW's weight decay").min(0.0));
  }
};

class Classifier : public levin::LightningModule {
 public:
  using Options = ClassifierOptions;
  explicit Classifier(ClassifierOptions options = {});

  /// x: (batch, 1, 28, 28) or (batch, 784) float; returns logits (batch, num_classes).
  torch::Tensor forward(const torch::Tensor& x) override;
  torch::Tensor training_step(const levin::Batch& batch) override;
  void validation_step(const levin::Batch& batch) override;
  void test_step(const levin::Batch& batch) override;
  /// The most likely class of each image: (batch) int64.
  torch::Tensor predict_step(const levin::Batch& batch) override;
  levin::OptimizerConfig configure_optimizers() override;

 private:
  void evaluate(const levin::Batch& batch, const std::string& stage);

  ClassifierOptions options_;
  torch::nn::Sequential net_{nullptr};
};
