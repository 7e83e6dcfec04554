// The options next to a learning-rate scheduler in configure_optimizers and run files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "levin/core/options/fields.h"

namespace levin {

/// What a scheduler counts: epochs or optimizer steps.
enum class Interval { epoch, step };
template <>
struct EnumNames<Interval> {
  static constexpr EnumName<Interval> names[] = {{"epoch", Interval::epoch}, {"step", Interval::step}};
};

/// When the trainer steps a scheduler, and which metric it watches.
struct LRSchedulerOptions {
  std::optional<EnumOption<Interval>> interval =
      std::nullopt;          // step: optimizer steps; unset: the scheduler's own, mostly epochs
  int64_t frequency = 1;     // every n epochs or steps
  std::string monitor = "";  // the metric that a plateau scheduler watches
  bool strict = true;        // an absent metric is an error; false: a warning, and the scheduler waits
  std::string name = "";     // under which LearningRateMonitor logs it

  template <class = void>
  static auto fields() {
    using O = LRSchedulerOptions;
    return levin::fields(field("interval", &O::interval,
                               "move after each epoch or each optimizer step; unset: steps for CosineWithWarmup, else "
                               "epochs"),
                         field("frequency", &O::frequency, "move after every n of them").min(1),
                         field("monitor", &O::monitor, "the metric ReduceLROnPlateau watches"),
                         field("strict", &O::strict, "an absent monitor is an error; false: a warning"),
                         field("name", &O::name, "what LearningRateMonitor calls it"));
  }
};

}  // namespace levin
