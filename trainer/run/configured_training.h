// The options of a fit's optimizers and schedulers, as checkpoints hold them.
//
// Note [Options of a resumed run]
// A resumed run uses the options that it is given, like any other run. A checkpoint restores the state that training
// has reached: weights, moments, counters, the positions of the schedules. A group's learning rate, momentum and weight
// decay are options, and schedules and callbacks change them. So checkpoints also hold the configured values. Where
// these and the schedulers' options are the same, the saved numbers continue, bitwise. Where one differs, the learning
// rate is the one that the schedule gives with the present options at this step: the schedule is moved from its start
// once more. A schedule that follows a metric, and a run without one, keep the ratio of the rate to the configured one.
// A schedule that a callback has set instead of the configured one, such as SWALR, starts again from the rates that it
// began with, in that ratio. The rates of a schedule that the present run no longer has are the configured ones. In
// PyTorch the saved numbers replace all options.
#pragma once

#include "levin/core/options/fields.h"
#include "levin/trainer/optimizer_config.h"
#include "levin/trainer/run/run.h"

namespace levin {

/// The configured numbers of a group.
struct ConfiguredGroup {
  double lr = 0;
  double momentum = 0;
  double weight_decay = 0;

  template <class = void>
  static auto fields() {
    return levin::fields(field("lr", &ConfiguredGroup::lr, "step size").any_number(),
                         field("momentum", &ConfiguredGroup::momentum, "momentum or beta1").any_number(),
                         field("weight_decay", &ConfiguredGroup::weight_decay, "weight decay").any_number());
  }
};

/// Returns the numbers of all groups, one list for each optimizer. Called before the trainer or a scheduler changes
/// them.
[[nodiscard]] ConfigNode configured_numbers(const OptimizerConfig& config);

/// Returns the options of the fit's optimizers and attached schedulers, with their configured numbers.
[[nodiscard]] ConfigNode configured_training(const Run& run, const ConfigNode& numbers);

/// Returns the same with the schedulers of the running fit: callbacks may have replaced the configured ones.
[[nodiscard]] ConfigNode present_training(const Run& run);

}  // namespace levin
