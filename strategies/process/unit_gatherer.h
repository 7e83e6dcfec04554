// Stage 3's weights: the whole of a unit is in memory only while operators read it. A unit is gathered when the first
// of them is about to (OperatorWatch), and given back when others were needed since, or when its gradients are done.
// What the last training step gathered, in its order, is what this one will: so the next is on its way while the
// current one computes.
//
// All ranks must run the same operators on weights in the same order: every gathering is a message to all. ReadOrder
// finds out where they do not.
#pragma once

#include <memory>
#include <vector>

#include "levin/strategies/process/flat_unit.h"
#include "levin/strategies/process/operator_watch.h"
#include "levin/strategies/process/parallel_strategy.h"
#include "levin/strategies/process/read_order.h"

namespace levin {

class UnitGatherer {
 public:
  using Units = std::vector<std::unique_ptr<FlatUnit>>;

  /// `units` outlive it. `order`: a group on the CPU by which ranks ask whether they read the same. `prefetch`: whether
  /// one unit is gathered ahead.
  UnitGatherer(Units& units, c10::intrusive_ptr<c10d::ProcessGroup> group, c10::intrusive_ptr<c10d::ProcessGroup> order,
               bool prefetch);
  ~UnitGatherer();
  UnitGatherer(const UnitGatherer&) = delete;
  UnitGatherer& operator=(const UnitGatherer&) = delete;

  /// Around the forward and backward of a batch: what is gathered in between is expected again.
  void begin_step();
  void end_step();
  /// Sends for whatever the last step did and this one has not yet: for a rank that has no loss while others do.
  void replay_rest();

  /// Gathers all, and keeps them until free_all().
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
  std::vector<size_t> needed_;             // this one so far
  std::vector<size_t> expected_messages_;  // the same in the order in which they were sent for
  std::vector<size_t> messages_;
  bool as_expected_ = true;
  std::unique_ptr<OperatorWatch> watch_;
};

}  // namespace levin
