// The interface of callbacks that change accumulate_grad_batches from epoch to epoch, such as
// GradientAccumulationScheduler: the trainer asks it before the fit, so that learning-rate schedules that end with the
// run, and estimated_stepping_batches(), know how many optimizer steps there will be.
#pragma once

#include <cstdint>

namespace levin {

/// The base of callbacks that know in advance how many batches each epoch accumulates.
class AccumulationSchedule {
 public:
  virtual ~AccumulationSchedule() = default;
  /// Returns the batches per optimizer step in `epoch` (from 0), at least 1: what the callback gives to
  /// Trainer::set_accumulate_grad_batches in that epoch. Every rank returns the same number.
  [[nodiscard]] virtual int64_t factor(int64_t epoch) const = 0;

 protected:
  AccumulationSchedule() = default;
  AccumulationSchedule(const AccumulationSchedule&) = default;
  AccumulationSchedule& operator=(const AccumulationSchedule&) = default;
};

}  // namespace levin
