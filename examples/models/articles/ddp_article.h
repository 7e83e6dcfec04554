// The example of the article on gradient accumulation and DDP: eight weights that are summed with their inputs. Two
// ranks, and one process that accumulates two batches, end at the same weights: configs/ddp_equals_accumulation.yaml.
#pragma once

#include "levin/levin.h"

struct EightWeightsOptions {
  double lr = 0.01;
  double momentum = 0.9;
  template <class = void>
  static auto fields() {
    using O = EightWeightsOptions;
    return levin::fields(levin::field("lr", &O::lr, "SGD's step size").above(0.0),
                         levin::field("momentum", &O::momentum, "SGD's momentum").min(0.0));
  }
};

/// x: (batch, 8) float; loss = sum(x * weight), with weight = (8) ones at the start. Prints the weights at the end.
class EightWeights : public levin::LightningModule {
 public:
  using Options = EightWeightsOptions;
  explicit EightWeights(EightWeightsOptions options = {});
  torch::Tensor training_step(const levin::Batch& batch) override;
  levin::OptimizerConfig configure_optimizers() override;
  void on_train_end() override;

 private:
  EightWeightsOptions options_;
  torch::Tensor weight_;
};

struct EightNumbersOptions {
  int64_t batch_size = 4;
  int64_t interleave = 1;
  template <class = void>
  static auto fields() {
    using O = EightNumbersOptions;
    return levin::fields(
        levin::field("batch_size", &O::batch_size, "samples of a batch").min(1),
        levin::field("interleave", &O::interleave, "batches in the order in which this many ranks see them").min(1));
  }
};

/// manual_seed(0); rand(8, 8): eight samples of eight numbers.
class EightNumbers : public levin::DataModule {
 public:
  using Options = EightNumbersOptions;
  explicit EightNumbers(EightNumbersOptions options = {});
  std::shared_ptr<levin::Loader> train_dataloader() override;

 private:
  EightNumbersOptions options_;
};
