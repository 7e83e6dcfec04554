// Two optimizers that take turns, and a loader of unknown length.
#pragma once

#include "levin/optim/sgd.h"
#include "levin/trainer/trainer.h"
#include "support/unsized_loader.h"

namespace levin::test {

inline double learning_rate(Trainer& trainer) {
  return trainer.optimizers().at(0).optimizer().param_groups()[0].lr;
}

/// Two optimizers that take turns, as the two halves of a GAN do.
class TwoPlayers : public LightningModule {
 public:
  TwoPlayers() {
    set_automatic_optimization(false);
    frozen.set_requires_grad(false);
  }
  at::Tensor training_step(const Batch&, int64_t) override {
    LightningOptimizer &opt_g = optimizer(0), &opt_d = optimizer(1);
    toggle_optimizer(opt_g.optimizer());
    flags.push_back({g.requires_grad(), d.requires_grad(), frozen.requires_grad()});
    opt_g.zero_grad();
    manual_backward((g * 2).sum() + (d * 100).sum());
    EXPECT_FALSE(d.grad().defined() && d.grad().sum().item().toDouble() >= 100);  // the other player's are left alone
    opt_g.step();
    untoggle_optimizer(opt_g.optimizer());

    toggle_optimizer(opt_d.optimizer());
    flags.push_back({g.requires_grad(), d.requires_grad(), frozen.requires_grad()});
    opt_d.zero_grad();
    manual_backward((d * 3).sum());
    opt_d.step();
    untoggle_optimizer(opt_d.optimizer());
    flags.push_back({g.requires_grad(), d.requires_grad(), frozen.requires_grad()});
    return {};
  }
  OptimizerConfig configure_optimizers() override {
    OptimizerConfig both(SGD({g}, {.lr = 1.0}));
    both.add(SGD({d, frozen}, {.lr = 1.0}));
    return both;
  }
  at::Tensor g{register_parameter("g", torch::zeros(1))};
  at::Tensor d{register_parameter("d", torch::zeros(1))};
  at::Tensor frozen{register_parameter("frozen", torch::zeros(1))};
  std::vector<std::array<bool, 3>> flags = {};
};

}  // namespace levin::test
