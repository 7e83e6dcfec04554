// What configure_optimizers returns: one optimizer or several, each with its learning-rate schedulers.
//
//   return AdamW(parameters(), {.lr = 1e-3});
//   return {SGD(parameters(), {.lr = 0.1}), StepLR({.step_size = 30})};
//   return {Adam(parameters()), OneCycleLR({.max_lr = 0.5, .total_steps = 100}), {.interval = Interval::step}};
//   return torch::optim::Adam(parameters(), 1e-3);  // LibTorch's optimizers work too
//
//   OptimizerConfig both(Adam(generator->parameters()));  // manual optimization
//   both.add(Adam(discriminator->parameters()));
//   return both;
#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "levin/optim/lr_scheduler.h"
#include "levin/optim/optimizer.h"
#include "levin/optim/torch_optimizer.h"
#include "levin/trainer/lr_scheduler_options.h"

namespace levin {

/// A scheduler, when it is stepped, and the index of the optimizer whose learning rates it sets.
struct LRSchedulerConfig {
  std::shared_ptr<LRScheduler> scheduler;
  LRSchedulerOptions options = {};
  size_t optimizer_index = 0;
};

/// The optimizers and schedulers of a module. It keeps copies (or shared pointers) of the objects given to it;
/// schedulers are attached to their optimizers when a fit begins. Automatic optimization steps one optimizer. Every
/// rank makes the same.
class OptimizerConfig {
 public:
  /// Makes a configuration without an optimizer: batches run without updates.
  OptimizerConfig() = default;

  template <std::derived_from<Optimizer> T>
  OptimizerConfig(T optimizer) {
    add(std::move(optimizer));
  }  // NOLINT(google-explicit-constructor)
  template <std::derived_from<Optimizer> T>
  OptimizerConfig(std::shared_ptr<T> optimizer) {
    add_shared(std::move(optimizer));
  }  // NOLINT
  template <std::derived_from<torch::optim::Optimizer> T>
  OptimizerConfig(T optimizer) {
    add(std::move(optimizer));
  }  // NOLINT(google-explicit-constructor)

  template <class O, std::derived_from<LRScheduler> S>
  OptimizerConfig(O optimizer, S scheduler, LRSchedulerOptions options = {}) {
    add(std::move(optimizer));
    schedule(std::move(scheduler), std::move(options));
  }

  /// Adds an optimizer. Throws ConfigError for a null pointer.
  template <std::derived_from<Optimizer> T>
  OptimizerConfig& add(T optimizer) {
    return add_shared(std::make_shared<T>(std::move(optimizer)));
  }
  template <std::derived_from<torch::optim::Optimizer> T>
  OptimizerConfig& add(T optimizer) {
    return add_shared(std::make_shared<TorchOptimizer>(std::make_shared<T>(std::move(optimizer))));
  }
  OptimizerConfig& add_shared(std::shared_ptr<Optimizer> optimizer);

  /// Adds a scheduler for the optimizer added last. Throws ConfigError without an optimizer, and for a scheduler that
  /// watches a metric without .monitor.
  template <std::derived_from<LRScheduler> S>
  OptimizerConfig& schedule(S scheduler, LRSchedulerOptions options = {}) {
    return schedule_shared(std::make_shared<S>(std::move(scheduler)), std::move(options));
  }
  OptimizerConfig& schedule_shared(std::shared_ptr<LRScheduler> scheduler, LRSchedulerOptions options = {});

  [[nodiscard]] const std::vector<std::shared_ptr<Optimizer>>& optimizers() const { return optimizers_; }
  [[nodiscard]] const std::vector<LRSchedulerConfig>& schedulers() const { return schedulers_; }

 private:
  std::vector<std::shared_ptr<Optimizer>> optimizers_ = {};
  std::vector<LRSchedulerConfig> schedulers_ = {};
};

}  // namespace levin
