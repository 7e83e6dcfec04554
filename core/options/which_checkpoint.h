// Which of a run's checkpoints: the best one by what its checkpoint callback monitors, or the newest.
#pragma once

#include <array>
#include <utility>

#include "levin/core/options/fields.h"

namespace levin {

/// Which checkpoint of a run is meant: the best by its callback's monitor, or the last.
enum class WhichCheckpoint { best, last };
template <>
struct EnumNames<WhichCheckpoint> {
  static constexpr std::array names{std::pair{"best", WhichCheckpoint::best}, std::pair{"last", WhichCheckpoint::last}};
};

}  // namespace levin
