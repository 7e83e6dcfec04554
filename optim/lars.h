// Optimizers for large batches that scale the step of every layer by the norm of its weights: LARS and LAMB.
#pragma once

#include <array>

#include "levin/optim/batched_optimizer.h"

namespace levin {

/// Options of LARS.
struct LARSOptions {
  static constexpr const char* kName = "LARS";

  double lr = 1e-3;
  double momentum = 0.9;
  double weight_decay = 0;
  double trust_coefficient = 1e-3;
  double eps = 1e-8;
  bool adapt_vectors = false;

  template <class = void>
  static auto fields() {
    using O = LARSOptions;
    return levin::fields(
        field("lr", &O::lr, "step size").min(0.0),
        field("momentum", &O::momentum, "fraction of the last update that is kept").min(0.0),
        field("weight_decay", &O::weight_decay, "added to the gradient, times the parameter").min(0.0),
        field("trust_coefficient", &O::trust_coefficient, "norm of a layer's step over the norm of its weights")
            .above(0.0),
        field("eps", &O::eps, "added to the norm of the gradient").min(0.0),
        field("adapt_vectors", &O::adapt_vectors,
              "adapt the step of biases and of norms' weights too; false: they take SGD's step"));
  }
};
extern template class OptimizerOf<LARSOptions>;

/// Momentum SGD in which the step of every layer is proportional to the norm of its weights over the norm of its
/// gradient (You et al. 2017, https://arxiv.org/abs/1708.03888). State: "momentum_buffer" if momentum is not 0.
class LARS final : public OptimizerOf<LARSOptions> {
 public:
  using OptimizerOf::OptimizerOf;
  [[nodiscard]] bool updates_whole_tensors() const override { return true; }

 private:
  std::vector<std::string> state_names() const override { return {"momentum_buffer"}; }
  bool uses_state(size_t, const Group& group, size_t) const override { return group.momentum != 0; }
  bool counts_steps() const override { return false; }
  void update(Batch& batch, const Group& group) override;
};

/// Options of LAMB.
struct LAMBOptions {
  static constexpr const char* kName = "LAMB";

  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-6;
  double weight_decay = 1e-2;
  bool adapt_vectors = false;

  template <class = void>
  static auto fields() {
    using O = LAMBOptions;
    return levin::fields(
        field("lr", &O::lr, "norm of a layer's step over the norm of its weights").min(0.0),
        field("betas", &O::betas, "decay of the mean of gradients and of squared gradients")
            .check([](const auto& betas) { return detail::are_betas(betas); }, "two numbers in [0, 1)"),
        field("eps", &O::eps, "added to the denominator").min(0.0),
        field("weight_decay", &O::weight_decay, "added to the update, times the parameter").min(0.0),
        field("adapt_vectors", &O::adapt_vectors,
              "adapt the step of biases and of norms' weights too; false: they take AdamW's step"));
  }
};
extern template class OptimizerOf<LAMBOptions>;

/// AdamW in which the step of every layer has the norm of its weights, times lr (You et al. 2019,
/// https://arxiv.org/abs/1904.00962). State: "step", "exp_avg", "exp_avg_sq".
class LAMB final : public OptimizerOf<LAMBOptions> {
 public:
  using OptimizerOf::OptimizerOf;
  [[nodiscard]] bool updates_whole_tensors() const override { return true; }

 private:
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  void update(Batch& batch, const Group& group) override;
};

}  // namespace levin
