// Schedule-free AdamW (Defazio et al. 2024, https://arxiv.org/abs/2405.15682): an average of the weights replaces a
// schedule, so that the number of steps need not be known beforehand. Gradients are taken at a point between
// the average and AdamW's iterate; the average is what is evaluated and saved.
//
//   ScheduleFreeAdamW optimizer(model.parameters(), {.lr = 2.5e-3, .warmup_steps = 100});
//   …steps…  optimizer.eval();  …evaluate…  optimizer.train();      // a Trainer does that by itself
#pragma once

#include <array>

#include "levin/optim/averaging_optimizer.h"
#include "levin/optim/batched_optimizer.h"

namespace levin {

/// Options of ScheduleFreeAdamW.
struct ScheduleFreeAdamWOptions {
  static constexpr const char* kName = "ScheduleFreeAdamW";

  double lr = 2.5e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  int64_t warmup_steps = 0;

  template <class = void>
  static auto fields() {
    using O = ScheduleFreeAdamWOptions;
    return levin::fields(
        field("lr", &O::lr, "step size; 1 to 10 times AdamW's with a schedule").min(0.0),
        field("betas", &O::betas,
              "position of the gradient between AdamW's iterate (0) and the average (1), and decay of the mean of "
              "squared "
              "gradients")
            .check([](const auto& betas) { return detail::are_betas(betas) && betas[0] > 0; },
                   "a number in (0, 1) and one in [0, 1)"),
        field("eps", &O::eps, "added to the denominator").min(0.0),
        field("weight_decay", &O::weight_decay, "fraction of the parameter that is subtracted, times lr").min(0.0),
        field("warmup_steps", &O::warmup_steps, "steps in which lr rises from 0; the only schedule it needs").min(0));
  }
};
extern template class OptimizerOf<ScheduleFreeAdamWOptions>;

/// AdamW with an average of the weights instead of a schedule. In training the parameters hold y, where gradients are
/// taken; after eval() x, the average. State: "z", AdamW's iterate; "exp_avg_sq"; "weight_sum", of the average; "step".
/// step() throws Error between eval() and train().
class ScheduleFreeAdamW final : public OptimizerOf<ScheduleFreeAdamWOptions>, public AveragingOptimizer {
 public:
  using OptimizerOf::OptimizerOf;
  void eval() override;
  void train() override;
  [[nodiscard]] std::vector<Averaged> averages() const override;
  /// The parameters must hold the trained values, of a checkpoint too.
  void load_state_dict(const State& saved) override;

 private:
  std::vector<std::string> state_names() const override { return {"z", "exp_avg_sq"}; }
  bool packs_small_tensors() const override { return true; }
  std::string product_name() const override { return "weight_sum"; }
  at::ScalarType product_type() const override { return at::kDouble; }
  /// Throws Error between eval() and train().
  void update(Batch& batch, const Group& group) override;

  std::vector<Averaged> kept_ = {};  // between eval() and train()
};

}  // namespace levin
