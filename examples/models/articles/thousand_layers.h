// A chain of any number of Linear layers, the use case of checkpoint_sequential. The weights begin orthogonal, so that
// a signal keeps its norm through all layers, and so does the gradient in backward (Saxe 2014, arXiv:1312.6120): a
// thousand layers can be trained without norms and shortcuts.
//
// With batches of B samples a layer keeps its input, 4 * B * width bytes, for backward. With k segments a step keeps
// the k - 1 inputs of segments, and the inputs of the layers of one segment at a time (Chen 2016, arXiv:1604.06174).
// This is least near the square root of the number of layers.
#pragma once

#include "levin/levin.h"

struct ThousandLayersOptions {
  int64_t layers = 1000;
  int64_t width = 32;
  int64_t in_features = 784;
  int64_t num_classes = 10;
  double lr = 1e-3;

  template <class = void>
  static auto fields() {
    using O = ThousandLayersOptions;
    return levin::fields(levin::field("layers", &O::layers, "Linear layers in a chain").min(1),
                         levin::field("width", &O::width, "inputs and outputs of each layer").min(1),
                         levin::field("in_features", &O::in_features, "numbers of a sample").min(1),
                         levin::field("num_classes", &O::num_classes, "classes").min(2),
                         levin::field("lr", &O::lr, "SGD's step size").above(0.0));
  }
};

/// Its submodule `layers` is the Sequential to compute again: recompute: {modules: [layers], segments: 32}.
class ThousandLayers : public levin::LightningModule {
 public:
  using Options = ThousandLayersOptions;
  explicit ThousandLayers(ThousandLayersOptions options = {});

  /// x: (batch, …), in_features numbers per sample; returns logits (batch, num_classes).
  torch::Tensor forward(const torch::Tensor& x) override;
  torch::Tensor training_step(const levin::Batch& batch) override;
  void validation_step(const levin::Batch& batch) override;
  levin::OptimizerConfig configure_optimizers() override;

 private:
  ThousandLayersOptions options_;
  torch::nn::Linear first_{nullptr};
  torch::nn::Sequential layers_{nullptr};
  torch::nn::Linear last_{nullptr};
};
