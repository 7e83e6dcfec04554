// Which of a run's checkpoints: the best one by what its checkpoint callback monitors, or the newest.
#pragma once

#include "levin/core/options/fields.h"

namespace levin {

/// Which checkpoint of a run is meant: the best by its callback's monitor, or the last.
enum class WhichCheckpoint { best, last };
template <>
struct EnumNames<WhichCheckpoint> {
  static constexpr EnumName<WhichCheckpoint> names[] = {{"best", WhichCheckpoint::best},
                                                        {"last", WhichCheckpoint::last}};
};

}  // namespace levin
