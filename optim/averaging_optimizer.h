// Optimizers whose result is an average that they keep themselves, as schedule-free ones do: in training the parameters
// hold other values. The trainer switches them for evaluations, for the weights in checkpoints and at the end.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace levin {

class AveragingOptimizer {
 public:
  /// Both values of one parameter. They keep their values when the parameter changes.
  struct Averaged {
    at::Tensor param;
    at::Tensor average;
    at::Tensor trained;
  };

  virtual ~AveragingOptimizer() = default;
  /// Puts the averages into the parameters and keeps the trained values aside. Does nothing if they are there, and
  /// leaves parameters alone that were never updated.
  virtual void eval() = 0;
  /// Puts the trained values back, bit for bit: for the next step.
  virtual void train() = 0;
  /// Of every parameter that was updated; copies.
  [[nodiscard]] virtual std::vector<Averaged> averages() const = 0;

 protected:
  AveragingOptimizer() = default;
  AveragingOptimizer(const AveragingOptimizer&) = default;
  AveragingOptimizer& operator=(const AveragingOptimizer&) = default;
};

}  // namespace levin
