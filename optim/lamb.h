// LAMB (You et al. 2019, https://arxiv.org/abs/1904.00962): AdamW for large batches, in which the step of every layer
// has the norm of its weights.
#pragma once

#include <array>

#include "levin/core/fields.h"
#include "levin/optim/batched_optimizer.h"
#include "levin/optim/whole_tensors.h"

namespace levin {

struct LAMBOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-6;
  double weight_decay = 1e-2;
  bool adapt_vectors = false;

  template <class = void>
  static auto fields() {
    using O = LAMBOptions;
    return levin::fields(
        field("lr", &O::lr, "size of a layer's step over that of its weights").min(0.0),
        field("betas", &O::betas, "decay of the mean of gradients and of squared gradients")
            .check([](const auto& betas) { return detail::are_betas(betas); }, "two numbers in [0, 1)"),
        field("eps", &O::eps, "added to the denominator").min(0.0),
        field("weight_decay", &O::weight_decay, "added to the update, times the parameter").min(0.0),
        field("adapt_vectors", &O::adapt_vectors,
              "adapt the step of biases and of norms' weights too; false: they take that of AdamW"));
  }
};

/// State: "step", "exp_avg", "exp_avg_sq".
class LAMB final : public BatchedOptimizer, public WholeTensorUpdate {
 public:
  using Options = LAMBOptions;

  /// Groups are added later.
  explicit LAMB(LAMBOptions options = {});
  explicit LAMB(std::vector<at::Tensor> params, LAMBOptions options = {}) : LAMB(options) {
    add_param_group({.params = std::move(params)});
  }
  explicit LAMB(std::vector<ParamGroup> groups, LAMBOptions options = {}) : LAMB(options) {
    for (auto& group : groups) add_param_group(std::move(group));
  }

  [[nodiscard]] std::string name() const override { return "LAMB"; }
  [[nodiscard]] ConfigNode written_options() const override { return write_options(options_); }

 private:
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  void update(Batch& batch, const Group& group) override;

  LAMBOptions options_;
};

}  // namespace levin
