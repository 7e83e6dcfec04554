// Stochastic gradient descent with momentum, on ATen's fused kernel.
#pragma once

#include "levin/core/fields.h"
#include "levin/optim/batched_optimizer.h"

namespace levin {

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("lr", &SGDOptions::lr, "step size").min(0.0),
        field("momentum", &SGDOptions::momentum, "share of the last update that is kept").min(0.0),
        field("dampening", &SGDOptions::dampening, "share of the gradient that is left out of the momentum"),
        field("weight_decay", &SGDOptions::weight_decay, "added to the gradient, times the parameter").min(0.0),
        field("nesterov", &SGDOptions::nesterov, "look ahead along the momentum; needs momentum > 0 and dampening 0"),
        field("maximize", &SGDOptions::maximize, "climb instead of descend"));
  }
};

/// State: "momentum_buffer" where momentum is not 0.
class SGD final : public BatchedOptimizer {
 public:
  using Options = SGDOptions;

  /// Groups are added later.
  explicit SGD(SGDOptions options = {});
  explicit SGD(std::vector<at::Tensor> params, SGDOptions options = {}) : SGD(options) {
    add_param_group({.params = std::move(params)});
  }
  explicit SGD(std::vector<ParamGroup> groups, SGDOptions options = {}) : SGD(options) {
    for (auto& group : groups) add_param_group(std::move(group));
  }

  [[nodiscard]] std::string name() const override { return "SGD"; }
  [[nodiscard]] ConfigNode written_options() const override { return write_options(options_); }
  [[nodiscard]] bool is_recordable() const override { return true; }

 private:
  std::vector<std::string> state_names() const override { return {"momentum_buffer"}; }
  bool uses_state(size_t, const Group& group, size_t) const override { return group.momentum != 0; }
  bool counts_steps() const override { return false; }
  void update(Batch& batch, const Group& group) override;
  void update(const Tensors& params, const Tensors& grads, const Tensors& momenta, const Batch& batch,
              const Group& group) const;

  SGDOptions options_;
};

}  // namespace levin
