// In stage 3 every gathering of weights is a collective, so ranks must read weights in the same order. Otherwise ranks
// would mix up weights if units have the same size, and hang or crash if not.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "levin/strategies/process/flat_unit.h"
#include "levin/strategies/process/parallel_strategy.h"
#include "levin/strategies/process/rank_error.h"

namespace levin {

class ReadOrder {
 public:
  using Units = std::vector<std::unique_ptr<FlatUnit>>;

  /// `units` must outlive it. `group`: a separate CPU group, so that its collectives are not mixed with others.
  ReadOrder(const Units& units, c10::intrusive_ptr<c10d::ProcessGroup> group);

  /// Checks that all ranks are about to gather `unit`. Called before every gathering that does not follow the order of
  /// the last step: all of the first step, and those of a step that differs. Throws Error naming the ranks and units
  /// that differ, and RankError if another rank does not call it within the timeout, because it followed the last
  /// order.
  void agree(size_t unit);

 private:
  const Units& units_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

}  // namespace levin
