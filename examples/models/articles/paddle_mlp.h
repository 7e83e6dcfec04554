// The network of PaddlePaddle's page on Recompute: fully connected layers from fc_1 to pred, of which only the outputs
// that `recompute: {checkpoints: [fc_1, pred]}` names are kept for backward: configs/paddle_recompute.yaml.
#pragma once

#include "levin/levin.h"

struct PaddleMlpOptions {
  int64_t in_features = 784;
  int64_t hidden = 128;
  int64_t num_classes = 10;
  double lr = 0.01;

  template <class = void>
  static auto fields() {
    using O = PaddleMlpOptions;
    return levin::fields(levin::field("in_features", &O::in_features, "numbers of a sample").min(1),
                         levin::field("hidden", &O::hidden, "units of the layers before the last").min(1),
                         levin::field("num_classes", &O::num_classes, "classes").min(2),
                         levin::field("lr", &O::lr, "Adam's step size").above(0.0));
  }
};

/// Its Sequential `net` has the layers fc_1, fc_2, fc_3 and pred, with relu_1, relu_2 and relu_3 between them.
class PaddleMlp : public levin::LightningModule {
 public:
  using Options = PaddleMlpOptions;
  explicit PaddleMlp(PaddleMlpOptions options = {});

  /// x: (batch, …), in_features numbers per sample; returns logits (batch, num_classes).
  torch::Tensor forward(const torch::Tensor& x) override;
  torch::Tensor training_step(const levin::Batch& batch) override;
  void validation_step(const levin::Batch& batch) override;
  levin::OptimizerConfig configure_optimizers() override;

 private:
  PaddleMlpOptions options_;
  torch::nn::Sequential net_{nullptr};
};
