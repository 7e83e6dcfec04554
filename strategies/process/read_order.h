// In stage 3 every gathering is a message to all, so ranks must read weights in the same order. Two that do not would
// mix up their weights where units are of one size, and wait for each other forever, or crash, where they are not.
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

  /// `units` outlive it. `group`: on the CPU, of its own, so that its messages meet no others.
  ReadOrder(const Units& units, c10::intrusive_ptr<c10d::ProcessGroup> group);

  /// Whether all ranks are about to gather `unit`. Called before every gathering that the last step does not announce:
  /// all of the first step's, and those of a step that goes another way. Throws Error that says who is about to
  /// gather what, and RankError if another rank does not ask within the timeout, because it went the known way.
  void agree(size_t unit);

 private:
  const Units& units_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

}  // namespace levin
