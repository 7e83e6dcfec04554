// Optimizers that divide gradients by the root of a sum or a mean of their squares: Adagrad, Adadelta, RMSprop.
#pragma once

#include "levin/optim/batched_optimizer.h"

namespace levin {

/// Options of Adagrad; names and defaults are torch.optim.Adagrad's.
struct AdagradOptions {
  static constexpr const char* kName = "Adagrad";

  double lr = 1e-2;
  double lr_decay = 0;
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  double eps = 1e-10;
  bool maximize = false;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("lr", &AdagradOptions::lr, "step size").min(0.0),
        field("lr_decay", &AdagradOptions::lr_decay, "lr is divided by 1 + lr_decay * (step - 1)").min(0.0),
        field("weight_decay", &AdagradOptions::weight_decay, "added to the gradient, times the parameter").min(0.0),
        field("initial_accumulator_value", &AdagradOptions::initial_accumulator_value,
              "where the sum of squares starts")
            .min(0.0),
        field("eps", &AdagradOptions::eps, "added to the denominator").min(0.0),
        field("maximize", &AdagradOptions::maximize, "climb instead of descend"));
  }
};
extern template class OptimizerOf<AdagradOptions>;

/// Gradients over the root of the sum of their squares (Duchi et al. 2011), as in torch.optim.Adagrad, on ATen's fused
/// kernel. State: "step", "sum".
class Adagrad final : public OptimizerOf<AdagradOptions> {
 public:
  using OptimizerOf::OptimizerOf;
  [[nodiscard]] bool is_recordable() const override;  // from LibTorch 2.8 on
  [[nodiscard]] std::string why_not_recordable() const override;

 private:
  std::vector<std::string> state_names() const override { return {"sum"}; }
  double initial_state() const override { return options_.initial_accumulator_value; }
  bool has_step_tensor() const override { return true; }
  bool rounds_learning_rate() const override { return false; }  // CUDA's kernel divides it in float64
  void update(Batch& batch, const Group& group) override;
};

/// Options of Adadelta; names and defaults are torch.optim.Adadelta's.
struct AdadeltaOptions {
  static constexpr const char* kName = "Adadelta";

  double lr = 1.0;
  double rho = 0.9;
  double eps = 1e-6;
  double weight_decay = 0;
  bool maximize = false;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("lr", &AdadeltaOptions::lr, "step size").min(0.0),
        field("rho", &AdadeltaOptions::rho, "decay of both means of squares").min(0.0).max(1.0),
        field("eps", &AdadeltaOptions::eps, "added to the denominator").min(0.0),
        field("weight_decay", &AdadeltaOptions::weight_decay, "added to the gradient, times the parameter").min(0.0),
        field("maximize", &AdadeltaOptions::maximize, "climb instead of descend"));
  }
};
extern template class OptimizerOf<AdadeltaOptions>;

/// Steps scaled by the root mean square of past steps over the root mean square of gradients (Zeiler 2012,
/// https://arxiv.org/abs/1212.5701), as in torch.optim.Adadelta. State: "step", "square_avg", "acc_delta".
class Adadelta final : public OptimizerOf<AdadeltaOptions> {
 public:
  using OptimizerOf::OptimizerOf;

 private:
  std::vector<std::string> state_names() const override { return {"square_avg", "acc_delta"}; }
  bool packs_small_tensors() const override { return true; }
  void update(Batch& batch, const Group& group) override;
};

/// Options of RMSprop; names and defaults are torch.optim.RMSprop's.
struct RMSpropOptions {
  static constexpr const char* kName = "RMSprop";

  double lr = 1e-2;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;
  bool maximize = false;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("lr", &RMSpropOptions::lr, "step size").min(0.0),
        field("alpha", &RMSpropOptions::alpha, "decay of the mean of squared gradients").min(0.0),
        field("eps", &RMSpropOptions::eps, "added to the denominator").min(0.0),
        field("weight_decay", &RMSpropOptions::weight_decay, "added to the gradient, times the parameter").min(0.0),
        field("momentum", &RMSpropOptions::momentum, "fraction of the last update that is kept").min(0.0),
        field("centered", &RMSpropOptions::centered,
              "divide by the standard deviation instead of the root mean square"),
        field("maximize", &RMSpropOptions::maximize, "climb instead of descend"));
  }
};
extern template class OptimizerOf<RMSpropOptions>;

/// Gradients over their root mean square (Tieleman, Hinton 2012), as in torch.optim.RMSprop. State: "step",
/// "square_avg", "momentum_buffer" if momentum is not 0, "grad_avg" if centered.
class RMSprop final : public OptimizerOf<RMSpropOptions> {
 public:
  using OptimizerOf::OptimizerOf;

 private:
  std::vector<std::string> state_names() const override { return {"square_avg", "momentum_buffer", "grad_avg"}; }
  bool uses_state(size_t index, const Group& group, size_t) const override;
  bool packs_small_tensors() const override { return true; }
  void update(Batch& batch, const Group& group) override;
};

}  // namespace levin
