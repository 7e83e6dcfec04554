#include "levin/strategies/process/unit_gatherer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <limits>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "levin/libtorch/operator_watch.h"

namespace levin {

ReadOrder::ReadOrder(const Units& units, c10::intrusive_ptr<c10d::ProcessGroup> group)
    : units_(units), group_(std::move(group)) {}

void ReadOrder::agree(size_t unit) {
  const OperatorWatch::Unseen unseen;
  std::vector<at::Tensor> own = {at::empty({1}, at::kLong).fill_(static_cast<int64_t>(unit))};
  std::vector<std::vector<at::Tensor>> all(1);
  for (int k = 0; k < group_->getSize(); ++k) all[0].push_back(at::empty_like(own[0]));
  wait_for(*group_->allgather(all, own), *group_, "agreeing to gather " + unit_text(units_, unit),
           "Another rank ended, hangs, or reads other weights; see its output.");
  const auto unit_of = [&](size_t rank) { return static_cast<size_t>(all[0][rank].item<int64_t>()); };
  for (size_t rank = 1; rank < all[0].size(); ++rank) {
    if (unit_of(rank) == unit_of(0)) continue;
    throw Error(
        "fsdp stage 3: ranks read weights in different orders: rank 0 is about to read " +
        unit_text(units_, unit_of(0)) + ", rank " + std::to_string(rank) + " " + unit_text(units_, unit_of(rank)) +
        ". Run the same layers in the same order on every rank, or use stage 2, which keeps weights unsharded.");
  }
}

namespace {

// The most units kept, including one in addition to the units that the running operator reads: the previous one, whose
// last operators may still follow.
constexpr int64_t kKeptUnits = 2;

constexpr size_t kReduction = std::numeric_limits<size_t>::max();  // among messages: a unit's gradients

}  // namespace

struct UnitGatherer::Place {
  c10::StorageImpl* storage = nullptr;
  c10::intrusive_ptr<c10d::Work> work = {};  // of an all_gather that has not been waited for
  int64_t last_use = 0;
};

UnitGatherer::UnitGatherer(Units& units, c10::intrusive_ptr<c10d::ProcessGroup> group,
                           c10::intrusive_ptr<c10d::ProcessGroup> order, bool prefetch)
    : units_(units), group_(std::move(group)), order_(units, std::move(order)), prefetch_(prefetch) {
  for (const auto& unit : units_) {
    places_.push_back({unit->whole().storage().unsafeGetStorageImpl()});
    unit->free_whole();
  }
  watch_ = std::make_unique<OperatorWatch>([this](const auto& read) { before(read); },
                                           [this](const auto& written) { after(written); });
}

UnitGatherer::~UnitGatherer() {
  watch_.reset();
  for (auto& place : places_) {
    if (!place.work) continue;
    try {
      place.work->wait();  // it writes to memory that is about to be freed
    } catch (const std::exception&) {
      // The run has already failed and reported it.
    }
  }
}

void UnitGatherer::begin_step() {
  end_step();  // for a previous batch without a backward
  records_ = true;
  as_expected_ = true;
}

// Every step begins without any gathered unit, so that ranks gather the same units.
void UnitGatherer::end_step() {
  free_all();
  if (!std::exchange(records_, false)) return;
  expected_ = std::exchange(needed_, {});
  expected_messages_ = std::exchange(messages_, {});
}

// A rank that computes waits for its reductions before it gathers further units, so both follow its order.
void UnitGatherer::replay_rest(const std::function<void(size_t)>& reduce) {
  const OperatorWatch::Unseen unseen;
  const std::vector<size_t> all = expected_messages_;
  size_t reductions = 0;
  for (size_t k = messages_.size(); k < all.size(); ++k) {
    if (all[k] == kReduction) {
      reduce(++reductions);
    } else {
      free(all[k]);
      start(all[k]);
    }
  }
  if (!records_ || !as_expected_) return;
  needed_ = expected_;  // for the next step, as on the ranks that computed this one
  messages_ = all;
}

void UnitGatherer::note_reduction() {
  if (records_) messages_.push_back(kReduction);
}

void UnitGatherer::keep_all() {
  const OperatorWatch::Unseen unseen;
  keeps_all_ = true;
  for (size_t k = 0; k < units_.size(); ++k) start(k);
  for (size_t k = 0; k < units_.size(); ++k) wait(k);
}

void UnitGatherer::before(const OperatorWatch::Storages& storages) {
  std::vector<size_t> needed;
  for (const c10::StorageImpl* storage : storages) {
    for (size_t k = 0; k < places_.size(); ++k) {
      if (places_[k].storage == storage) needed.push_back(k);
    }
  }
  if (needed.empty()) return;
  ++clock_;
  bool gathers = false;
  for (const size_t unit : needed) {
    places_[unit].last_use = clock_;
    if (units_[unit]->has_whole() && !places_[unit].work) continue;
    demand(unit);
    gathers = true;
  }
  if (gathers) give_back_others(needed);
}

// Writes to weights that do not come from the optimizer are copied to this rank's part.
void UnitGatherer::after(const OperatorWatch::Storages& storages) {
  const at::NoGradGuard no_grad;
  for (const c10::StorageImpl* storage : storages) {
    for (size_t k = 0; k < places_.size(); ++k) {
      if (places_[k].storage == storage) units_[k]->part().copy_(units_[k]->own_stretch(units_[k]->whole()));
    }
  }
}

void UnitGatherer::demand(size_t unit) {
  bool announced = false;
  if (records_) {
    as_expected_ = as_expected_ && needed_.size() < expected_.size() && expected_[needed_.size()] == unit;
    announced = as_expected_;
    needed_.push_back(unit);
  }
  if (!announced && !units_[unit]->has_whole()) order_.agree(unit);
  start(unit);
  if (prefetch_ && announced && needed_.size() < expected_.size()) start(expected_[needed_.size()]);
  wait(unit);
}

void UnitGatherer::start(size_t unit) {
  FlatUnit& flat = *units_[unit];
  if (flat.has_whole()) return;  // gathered, or in flight
  const at::NoGradGuard no_grad;
  if (records_) messages_.push_back(unit);
  flat.allocate_whole();
  at::Tensor whole = flat.whole();
  at::Tensor part = flat.part().to(whole.options());
  places_[unit].work = group_->_allgather_base(whole, part);
  places_[unit].last_use = clock_;
}

void UnitGatherer::wait(size_t unit) {
  const auto work = std::exchange(places_[unit].work, {});
  if (!work) return;
  wait_for(*work, *group_, "gathering " + unit_text(units_, unit),
           "Another rank ended, hangs, or reads other weights; see its output.");
}

void UnitGatherer::give_back_others(const std::vector<size_t>& needed) {
  if (keeps_all_) return;
  std::vector<size_t> others;
  for (size_t k = 0; k < units_.size(); ++k) {
    const bool idle = units_[k]->has_whole() && !places_[k].work;
    if (idle && std::find(needed.begin(), needed.end(), k) == needed.end()) others.push_back(k);
  }
  std::sort(others.begin(), others.end(),
            [&](size_t a, size_t b) { return places_[a].last_use > places_[b].last_use; });
  for (size_t k = kKeptUnits - 1; k < others.size(); ++k) free(others[k]);
}

void UnitGatherer::free(size_t unit) {
  wait(unit);
  if (units_[unit]->has_whole()) units_[unit]->free_whole();
}

void UnitGatherer::free_all() {
  keeps_all_ = false;
  for (size_t k = 0; k < units_.size(); ++k) free(k);
}

}  // namespace levin
