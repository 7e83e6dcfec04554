// Adam (Kingma, Ba 2014, https://arxiv.org/abs/1412.6980) and its relatives.
#pragma once

#include <array>

#include "levin/optim/batched_optimizer.h"

namespace levin {

/// Options of Adam; names and defaults are torch.optim.Adam's.
struct AdamOptions {
  static constexpr const char* kName = "Adam";

  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;
  bool maximize = false;
  bool decoupled_weight_decay = false;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("lr", &AdamOptions::lr, "step size").min(0.0),
        field("betas", &AdamOptions::betas, "decay of the mean of gradients and of squared gradients")
            .check([](const auto& betas) { return detail::are_betas(betas); }, "two numbers in [0, 1)"),
        field("eps", &AdamOptions::eps, "added to the denominator").min(0.0),
        field("weight_decay", &AdamOptions::weight_decay, "added to the gradient, times the parameter").min(0.0),
        field("amsgrad", &AdamOptions::amsgrad, "divide by the largest mean of squares seen so far"),
        field("maximize", &AdamOptions::maximize, "climb instead of descend"),
        field("decoupled_weight_decay", &AdamOptions::decoupled_weight_decay,
              "decay the parameter itself, as AdamW does"));
  }
};

/// Options of AdamW; names and defaults are torch.optim.AdamW's.
struct AdamWOptions {
  static constexpr const char* kName = "AdamW";

  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool amsgrad = false;
  bool maximize = false;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("lr", &AdamWOptions::lr, "step size").min(0.0),
        field("betas", &AdamWOptions::betas, "decay of the mean of gradients and of squared gradients")
            .check([](const auto& betas) { return detail::are_betas(betas); }, "two numbers in [0, 1)"),
        field("eps", &AdamWOptions::eps, "added to the denominator").min(0.0),
        field("weight_decay", &AdamWOptions::weight_decay, "fraction of the parameter that is subtracted, times lr")
            .min(0.0),
        field("amsgrad", &AdamWOptions::amsgrad, "divide by the largest mean of squares seen so far"),
        field("maximize", &AdamWOptions::maximize, "climb instead of descend"));
  }
};

extern template class OptimizerOf<AdamOptions>;
extern template class OptimizerOf<AdamWOptions>;

/// The common part of Adam and AdamW, on ATen's fused kernels. State: "step", "exp_avg", "exp_avg_sq", and
/// "max_exp_avg_sq" with amsgrad.
template <class O>
class AdamOf : public OptimizerOf<O> {
 public:
  using OptimizerOf<O>::OptimizerOf;
  /// AdamW's are written as Adam's options with decoupled_weight_decay.
  [[nodiscard]] ConfigNode written_options() const override;
  [[nodiscard]] bool is_recordable() const override { return true; }

 private:
  std::vector<std::string> state_names() const override;
  bool has_step_tensor() const override { return true; }
  void update(BatchedOptimizer::Batch& batch, const Optimizer::Group& group) override;
};
extern template class AdamOf<AdamOptions>;
extern template class AdamOf<AdamWOptions>;

/// Adam (Kingma, Ba 2014, https://arxiv.org/abs/1412.6980), as in torch.optim.Adam. State: see AdamOf.
class Adam final : public AdamOf<AdamOptions> {
 public:
  using AdamOf::AdamOf;
};

/// Adam with decoupled weight decay (Loshchilov, Hutter 2017, https://arxiv.org/abs/1711.05101), as in
/// torch.optim.AdamW. State: see AdamOf.
class AdamW final : public AdamOf<AdamWOptions> {
 public:
  using AdamOf::AdamOf;
};

/// Options of Adamax; names and defaults are torch.optim.Adamax's.
struct AdamaxOptions {
  static constexpr const char* kName = "Adamax";

  double lr = 2e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool maximize = false;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("lr", &AdamaxOptions::lr, "step size").min(0.0),
        field("betas", &AdamaxOptions::betas, "decay of the mean and of the largest gradient")
            .check([](const auto& betas) { return detail::are_betas(betas); }, "two numbers in [0, 1)"),
        field("eps", &AdamaxOptions::eps, "added to the size of each gradient").min(0.0),
        field("weight_decay", &AdamaxOptions::weight_decay, "added to the gradient, times the parameter").min(0.0),
        field("maximize", &AdamaxOptions::maximize, "climb instead of descend"));
  }
};
extern template class OptimizerOf<AdamaxOptions>;

/// Adam with the largest gradient instead of the mean square (Kingma, Ba 2014), as in torch.optim.Adamax. State:
/// "step", "exp_avg", "exp_inf".
class Adamax final : public OptimizerOf<AdamaxOptions> {
 public:
  using OptimizerOf::OptimizerOf;

 private:
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_inf"}; }
  bool packs_small_tensors() const override { return true; }
  void update(Batch& batch, const Group& group) override;
};

/// Options of NAdam; names and defaults are torch.optim.NAdam's.
struct NAdamOptions {
  static constexpr const char* kName = "NAdam";

  double lr = 2e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum_decay = 4e-3;
  bool decoupled_weight_decay = false;
  bool maximize = false;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("lr", &NAdamOptions::lr, "step size").min(0.0),
        field("betas", &NAdamOptions::betas, "decay of the mean of gradients and of squared gradients")
            .check([](const auto& betas) { return detail::are_betas(betas); }, "two numbers in [0, 1)"),
        field("eps", &NAdamOptions::eps, "added to the denominator").min(0.0),
        field("weight_decay", &NAdamOptions::weight_decay, "added to the gradient, times the parameter").min(0.0),
        field("momentum_decay", &NAdamOptions::momentum_decay, "how fast the momentum warms up").min(0.0),
        field("decoupled_weight_decay", &NAdamOptions::decoupled_weight_decay,
              "decay the parameter itself, as AdamW does"),
        field("maximize", &NAdamOptions::maximize, "climb instead of descend"));
  }
};
extern template class OptimizerOf<NAdamOptions>;

/// Adam with Nesterov momentum (Dozat 2016), as in torch.optim.NAdam. State: "step", "mu_product", "exp_avg",
/// "exp_avg_sq".
class NAdam final : public OptimizerOf<NAdamOptions> {
 public:
  using OptimizerOf::OptimizerOf;

 private:
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  std::string product_name() const override { return "mu_product"; }
  bool packs_small_tensors() const override { return true; }
  void update(Batch& batch, const Group& group) override;
};

/// Options of RAdam; names and defaults are torch.optim.RAdam's.
struct RAdamOptions {
  static constexpr const char* kName = "RAdam";

  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled_weight_decay = false;
  bool maximize = false;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("lr", &RAdamOptions::lr, "step size").min(0.0),
        field("betas", &RAdamOptions::betas, "decay of the mean of gradients and of squared gradients")
            .check([](const auto& betas) { return detail::are_betas(betas); }, "two numbers in [0, 1)"),
        field("eps", &RAdamOptions::eps, "added to the denominator").min(0.0),
        field("weight_decay", &RAdamOptions::weight_decay, "added to the gradient, times the parameter").min(0.0),
        field("decoupled_weight_decay", &RAdamOptions::decoupled_weight_decay,
              "decay the parameter itself, as AdamW does"),
        field("maximize", &RAdamOptions::maximize, "climb instead of descend"));
  }
};
extern template class OptimizerOf<RAdamOptions>;

/// Adam that omits its denominator until the denominator is reliable (Liu et al. 2019,
/// https://arxiv.org/abs/1908.03265), as in torch.optim.RAdam. State: "step", "exp_avg", "exp_avg_sq".
class RAdam final : public OptimizerOf<RAdamOptions> {
 public:
  using OptimizerOf::OptimizerOf;

 private:
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  bool packs_small_tensors() const override { return true; }
  void update(Batch& batch, const Group& group) override;
};

}  // namespace levin
