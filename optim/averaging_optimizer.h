// Optimizers whose result is an average of the weights that they keep themselves, as schedule-free ones do. During
// training the parameters hold different values. The trainer switches for evaluations, for the weights in checkpoints
// and at the end.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace levin {

/// The additional interface of an optimizer that keeps an average. Every rank calls the same functions.
class AveragingOptimizer {
 public:
  /// Both values of one parameter. They keep their values when the parameter changes.
  struct Averaged {
    at::Tensor param;
    at::Tensor average;
    at::Tensor trained;
  };

  virtual ~AveragingOptimizer() = default;
  /// Copies the averages into the parameters and saves the trained values. Does nothing if the parameters hold the
  /// averages already, and leaves parameters alone that were never updated.
  virtual void eval() = 0;
  /// Restores the trained values, bitwise identical, for the next step.
  virtual void train() = 0;
  /// Returns copies of both values of every parameter that was updated.
  [[nodiscard]] virtual std::vector<Averaged> averages() const = 0;

 protected:
  AveragingOptimizer() = default;
  AveragingOptimizer(const AveragingOptimizer&) = default;
  AveragingOptimizer& operator=(const AveragingOptimizer&) = default;
};

}  // namespace levin
