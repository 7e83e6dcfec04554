// Wraps any optimizer of the torch::optim interface, for optimizers that users already have.
//
//   TorchOptimizer optimizer(torch::optim::SGD(model.parameters(), 0.1));
//
// lr, momentum (betas[0]) and weight_decay of LibTorch's own six can be scheduled; of others lr, if they override
// set_lr. State of LibTorch's own six can be saved and loaded; of others state_dict() throws. Prefer Levin's own
// optimizers: they do the same sums several times faster.
#pragma once

#include <torch/optim/optimizer.h>

#include <concepts>
#include <memory>

#include "levin/optim/optimizer.h"

namespace levin {

/// An optimizer of the torch::optim interface as a levin::Optimizer.
class TorchOptimizer final : public Optimizer {
 public:
  explicit TorchOptimizer(std::shared_ptr<torch::optim::Optimizer> inner);
  template <std::derived_from<torch::optim::Optimizer> T>
  explicit TorchOptimizer(T inner) : TorchOptimizer(std::make_shared<T>(std::move(inner))) {}

  /// "torch.SGD", or "torch.Optimizer" for classes that are not LibTorch's.
  [[nodiscard]] std::string name() const override;
  [[nodiscard]] bool needs_closure() const override;
  /// Returns all options of LibTorch's own six classes, and null for others.
  [[nodiscard]] ConfigNode written_options() const override;
  [[nodiscard]] torch::optim::Optimizer& inner() { return *inner_; }

  [[nodiscard]] StateLayout layout(const std::string& name) const override;
  /// Throws Error if the inner optimizer keeps state of a class that is not LibTorch's.
  [[nodiscard]] State state_dict() const override;
  void load_state_dict(const State& saved) override;

 private:
  at::Tensor do_step(const Closure* closure) override;
  void group_added() override;
  void send_settings();

  std::shared_ptr<torch::optim::Optimizer> inner_;
};

}  // namespace levin
