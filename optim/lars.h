// LARS (You et al. 2017, https://arxiv.org/abs/1708.03888): momentum SGD for large batches, in which the step of every
// layer is in proportion to the norm of its weights over that of its gradient.
#pragma once

#include "levin/core/fields.h"
#include "levin/optim/batched_optimizer.h"
#include "levin/optim/whole_tensors.h"

namespace levin {

struct LARSOptions {
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
        field("momentum", &O::momentum, "share of the last update that is kept").min(0.0),
        field("weight_decay", &O::weight_decay, "added to the gradient, times the parameter").min(0.0),
        field("trust_coefficient", &O::trust_coefficient, "size of a layer's step over that of its weights").above(0.0),
        field("eps", &O::eps, "added to the norm of the gradient").min(0.0),
        field("adapt_vectors", &O::adapt_vectors,
              "adapt the step of biases and of norms' weights too; false: they take that of SGD"));
  }
};

/// State: "momentum_buffer" where momentum is not 0.
class LARS final : public BatchedOptimizer, public WholeTensorUpdate {
 public:
  using Options = LARSOptions;

  /// Groups are added later.
  explicit LARS(LARSOptions options = {});
  explicit LARS(std::vector<at::Tensor> params, LARSOptions options = {}) : LARS(options) {
    add_param_group({.params = std::move(params)});
  }
  explicit LARS(std::vector<ParamGroup> groups, LARSOptions options = {}) : LARS(options) {
    for (auto& group : groups) add_param_group(std::move(group));
  }

  [[nodiscard]] std::string name() const override { return "LARS"; }
  [[nodiscard]] ConfigNode written_options() const override { return write_options(options_); }

 private:
  std::vector<std::string> state_names() const override { return {"momentum_buffer"}; }
  bool uses_state(size_t, const Group& group, size_t) const override { return group.momentum != 0; }
  bool counts_steps() const override { return false; }
  void update(Batch& batch, const Group& group) override;

  LARSOptions options_;
};

}  // namespace levin
