// Stage 3's weights: a unit is unsharded only while operators read it. It is gathered when the first operator is about
// to read it (OperatorWatch), and freed when others have been needed since, or when its gradients are done. A training
// step is expected to gather the same units in the same order as the last one, so the next unit is gathered while the
// current one computes.
//
// All ranks must run the same operators on weights in the same order: every gathering is a collective. ReadOrder
// detects ranks that do not.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "levin/libtorch/operator_watch.h"
#include "levin/strategies/process/flat_unit.h"
#include "levin/strategies/process/parallel_strategy.h"
#include "levin/strategies/process/rank_error.h"

namespace levin {

/// The order in which ranks read weights. In stage 3 every gathering of weights is a collective, so all ranks must read
/// in the same order. Otherwise they would mix up weights if units have the same size, and hang or crash if not.
class ReadOrder {
 public:
  using Units = std::vector<std::unique_ptr<FlatUnit>>;

  /// `units` must outlive it. `group`: a separate CPU group, so that its collectives are not mixed with others.
  ReadOrder(const Units& units, c10::intrusive_ptr<c10d::ProcessGroup> group);

  /// Checks that all ranks are about to gather `unit`. Called before every gathering that does not follow the order of
  /// the last step: every gathering of the first step, and of a step that differs. Throws Error naming the ranks and
  /// units that differ, and RankError if another rank does not call it within the timeout, because it followed the last
  /// order.
  void agree(size_t unit);

 private:
  const Units& units_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

class UnitGatherer {
 public:
  using Units = std::vector<std::unique_ptr<FlatUnit>>;

  /// `units` must outlive it. `order`: a CPU group by which ranks check that they read the same units. `prefetch`:
  /// whether one unit is gathered ahead.
  UnitGatherer(Units& units, c10::intrusive_ptr<c10d::ProcessGroup> group, c10::intrusive_ptr<c10d::ProcessGroup> order,
               bool prefetch);
  ~UnitGatherer();
  UnitGatherer(const UnitGatherer&) = delete;
  UnitGatherer& operator=(const UnitGatherer&) = delete;

  /// Called around the forward and backward of a batch: the units gathered in between are expected in the next step.
  void begin_step();
  void end_step();
  /// Gathers the units that the last step gathered and this one has not yet: for a rank without a loss while others
  /// have one. `reduce`, given a count, sends the gradients of as many units: other ranks wait for them in between.
  void replay_rest(const std::function<void(size_t)>& reduce);
  /// Called when the gradients of the next unit are sent.
  void note_reduction();

  /// Gathers all units, and keeps them until free_all().
  void keep_all();
  void free(size_t unit);
  void free_all();

 private:
  struct Place;
  void before(const OperatorWatch::Storages& storages);
  void after(const OperatorWatch::Storages& storages);
  void demand(size_t unit);
  void start(size_t unit);
  void wait(size_t unit);
  void give_back_others(const std::vector<size_t>& needed);

  Units& units_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  ReadOrder order_;
  bool prefetch_;
  std::vector<Place> places_;  // by unit
  int64_t clock_ = 0;
  bool records_ = false;
  bool keeps_all_ = false;
  std::vector<size_t> expected_;           // units in the order in which the last step needed them
  std::vector<size_t> needed_;             // by this step so far
  std::vector<size_t> expected_messages_;  // the same in the order in which they were gathered, and kReduction
  std::vector<size_t> messages_;
  bool as_expected_ = true;
  std::unique_ptr<OperatorWatch> watch_;
};

}  // namespace levin
