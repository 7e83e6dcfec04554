// Schedulers that follow the count of steps: decays, warmups and a free function.
//
//   LinearLR warmup(optimizer, {.start_factor = 0.01, .total_iters = 500});
#pragma once

#include <algorithm>
#include <functional>

#include "levin/optim/lr_scheduler.h"

namespace levin {

/// Options of StepLR; names and defaults are PyTorch's.
struct StepLROptions {
  static constexpr const char* kName = "StepLR";

  int64_t step_size = 0;
  double gamma = 0.1;

  template <class = void>
  static auto fields() {
    return levin::fields(field("step_size", &StepLROptions::step_size, "steps between two decays").min(1),
                         field("gamma", &StepLROptions::gamma, "factor of each decay"));
  }
};

extern template class SchedulerOf<StepLROptions>;

/// A factor of gamma on lr every step_size steps. PyTorch's StepLR.
class StepLR final : public SchedulerOf<StepLROptions> {
 public:
  using SchedulerOf::SchedulerOf;
  StepLR() = default;
  StepLR(Optimizer& optimizer, StepLROptions options) : SchedulerOf(std::move(options)) { attach(optimizer); }

 private:
  std::vector<double> next_lr() override;
  std::vector<double> closed_form() override;
};

/// Options of MultiStepLR; names and defaults are PyTorch's.
struct MultiStepLROptions {
  static constexpr const char* kName = "MultiStepLR";

  std::vector<int64_t> milestones = {};
  double gamma = 0.1;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("milestones", &MultiStepLROptions::milestones, "steps at which lr decays, rising")
            .not_empty()
            .check([](const auto& steps) { return std::is_sorted(steps.begin(), steps.end()); }, "rising"),
        field("gamma", &MultiStepLROptions::gamma, "factor of each decay"));
  }
};

extern template class SchedulerOf<MultiStepLROptions>;

/// A factor of gamma on lr at each milestone. PyTorch's MultiStepLR.
class MultiStepLR final : public SchedulerOf<MultiStepLROptions> {
 public:
  using SchedulerOf::SchedulerOf;
  MultiStepLR() = default;
  MultiStepLR(Optimizer& optimizer, MultiStepLROptions options) : SchedulerOf(std::move(options)) { attach(optimizer); }

 private:
  std::vector<double> next_lr() override;
  std::vector<double> closed_form() override;
};

/// Options of ConstantLR; names and defaults are PyTorch's.
struct ConstantLROptions {
  static constexpr const char* kName = "ConstantLR";

  double factor = 1.0 / 3;
  int64_t total_iters = 5;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("factor", &ConstantLROptions::factor, "of lr until total_iters").above(0.0).max(1.0),
        field("total_iters", &ConstantLROptions::total_iters, "number of steps that are scaled").min(0));
  }
};

extern template class SchedulerOf<ConstantLROptions>;

/// A constant factor on lr for the first total_iters steps. PyTorch's ConstantLR, but `factor` 0 is rejected: PyTorch
/// divides by it at total_iters, and lr becomes nan.
class ConstantLR final : public SchedulerOf<ConstantLROptions> {
 public:
  using SchedulerOf::SchedulerOf;
  ConstantLR() = default;
  ConstantLR(Optimizer& optimizer, ConstantLROptions options) : SchedulerOf(std::move(options)) { attach(optimizer); }

 private:
  std::vector<double> next_lr() override;
  std::vector<double> closed_form() override;
};

/// Options of LinearLR; names and defaults are PyTorch's.
struct LinearLROptions {
  static constexpr const char* kName = "LinearLR";

  double start_factor = 1.0 / 3;
  double end_factor = 1.0;
  int64_t total_iters = 5;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("start_factor", &LinearLROptions::start_factor, "of lr at the start").above(0.0).max(1.0),
        field("end_factor", &LinearLROptions::end_factor, "of lr from total_iters on").min(0.0).max(1.0),
        field("total_iters", &LinearLROptions::total_iters, "steps from one to the other").min(1));
  }
};

extern template class SchedulerOf<LinearLROptions>;

/// A factor on lr that moves linearly from start_factor to end_factor in total_iters steps: a warmup. PyTorch's
/// LinearLR.
class LinearLR final : public SchedulerOf<LinearLROptions> {
 public:
  using SchedulerOf::SchedulerOf;
  LinearLR() = default;
  LinearLR(Optimizer& optimizer, LinearLROptions options) : SchedulerOf(std::move(options)) { attach(optimizer); }

 private:
  std::vector<double> next_lr() override;
  std::vector<double> closed_form() override;
};

/// Options of ExponentialLR; names and defaults are PyTorch's.
struct ExponentialLROptions {
  static constexpr const char* kName = "ExponentialLR";

  double gamma = 0;

  template <class = void>
  static auto fields() {
    return levin::fields(field("gamma", &ExponentialLROptions::gamma, "factor of each step").above(0.0));
  }
};

extern template class SchedulerOf<ExponentialLROptions>;

/// A factor of gamma on lr at every step. PyTorch's ExponentialLR.
class ExponentialLR final : public SchedulerOf<ExponentialLROptions> {
 public:
  using SchedulerOf::SchedulerOf;
  ExponentialLR() = default;
  ExponentialLR(Optimizer& optimizer, ExponentialLROptions options) : SchedulerOf(std::move(options)) {
    attach(optimizer);
  }

 private:
  std::vector<double> next_lr() override;
  std::vector<double> closed_form() override;
};

/// Options of PolynomialLR; names and defaults are PyTorch's.
struct PolynomialLROptions {
  static constexpr const char* kName = "PolynomialLR";

  int64_t total_iters = 5;
  double power = 1.0;

  template <class = void>
  static auto fields() {
    return levin::fields(field("total_iters", &PolynomialLROptions::total_iters, "steps until lr is 0").min(1),
                         field("power", &PolynomialLROptions::power, "of the polynomial").above(0.0));
  }
};

extern template class SchedulerOf<PolynomialLROptions>;

/// A fall of lr to 0 in total_iters steps as (1 - t / total_iters)^power. PyTorch's PolynomialLR.
class PolynomialLR final : public SchedulerOf<PolynomialLROptions> {
 public:
  using SchedulerOf::SchedulerOf;
  PolynomialLR() = default;
  PolynomialLR(Optimizer& optimizer, PolynomialLROptions options) : SchedulerOf(std::move(options)) {
    attach(optimizer);
  }

 private:
  std::vector<double> next_lr() override;
  std::vector<double> closed_form() override;
};

/// The initial lr times a function of the step. PyTorch's LambdaLR. C++ only: functions cannot be written in YAML.
/// attach() throws Error if there are several functions, but not one for each group.
class LambdaLR final : public LRScheduler {
 public:
  using Function = std::function<double(int64_t)>;

  /// Attached later; one function for all groups, or one per group.
  explicit LambdaLR(Function lr_lambda) : lambdas_{std::move(lr_lambda)}, is_shared_(true) {}
  explicit LambdaLR(std::vector<Function> lr_lambdas) : lambdas_(std::move(lr_lambdas)) {}
  LambdaLR(Optimizer& optimizer, Function lr_lambda) : LambdaLR(std::move(lr_lambda)) { attach(optimizer); }
  LambdaLR(Optimizer& optimizer, std::vector<Function> lr_lambdas) : LambdaLR(std::move(lr_lambdas)) {
    attach(optimizer);
  }

  [[nodiscard]] std::string name() const override { return "LambdaLR"; }

 private:
  void prepare() override;
  std::vector<double> next_lr() override;

  std::vector<Function> lambdas_;
  bool is_shared_ = false;
};

}  // namespace levin
