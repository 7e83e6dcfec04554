// Stochastic gradient descent with momentum, on ATen's fused kernel.
#pragma once

#include "levin/optim/batched_optimizer.h"

namespace levin {

/// Options of SGD; names and defaults are torch.optim.SGD's.
struct SGDOptions {
  static constexpr const char* kName = "SGD";

  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;

  /// Throws ConfigError for nesterov without momentum or with dampening.
  void check() const;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("lr", &SGDOptions::lr, "step size").min(0.0),
        field("momentum", &SGDOptions::momentum, "fraction of the last update that is kept").min(0.0),
        field("dampening", &SGDOptions::dampening, "fraction of the gradient that is left out of the momentum"),
        field("weight_decay", &SGDOptions::weight_decay, "added to the gradient, times the parameter").min(0.0),
        field("nesterov", &SGDOptions::nesterov, "look ahead along the momentum; needs momentum > 0 and dampening 0"),
        field("maximize", &SGDOptions::maximize, "climb instead of descend"));
  }
};
extern template class OptimizerOf<SGDOptions>;

/// Stochastic gradient descent with momentum, dampening and Nesterov momentum, as in torch.optim.SGD. State:
/// "momentum_buffer" if momentum is not 0.
class SGD final : public OptimizerOf<SGDOptions> {
 public:
  using OptimizerOf::OptimizerOf;
  [[nodiscard]] bool is_recordable() const override { return true; }

 private:
  std::vector<std::string> state_names() const override { return {"momentum_buffer"}; }
  bool uses_state(size_t, const Group& group, size_t) const override { return group.momentum != 0; }
  bool counts_steps() const override { return false; }
  void update(Batch& batch, const Group& group) override;
  void update(const Tensors& params, const Tensors& grads, const Tensors& momenta, const Batch& batch,
              const Group& group) const;
};

}  // namespace levin
