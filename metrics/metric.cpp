#include "levin/metrics/metric.h"

#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <map>
#include <mutex>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/metrics/pair_batch.h"
#include "levin/metrics/update_count.h"
#include "levin/metrics/update_undo.h"

namespace levin::metrics {

namespace {

thread_local int64_t updates_here = 0;
thread_local UpdateRecords records_here;

template <class Tell>
void tell_records(Tell tell) {
  for (const auto& one : records_here) {
    if (const auto record = one.lock()) tell(*record);
  }
}

at::Tensor reduced(StateReduce reduce, const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor here = b.to(a.device(), a.scalar_type());
  switch (reduce) {
    case StateReduce::min: return at::minimum(a, here);
    case StateReduce::max: return at::maximum(a, here);
    default: return at::add(a, here);
  }
}

}  // namespace

struct UpdateRecord::Content {
  Metric::Kept states;
  MetricStates batch;
  bool has_batch = false;

  static std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& values) {
    std::vector<at::Tensor> copies;
    for (const at::Tensor& value : values) copies.push_back(value.defined() ? value.clone() : value);
    return copies;
  }
};

UpdateRecord::Content UpdateRecord::content_of(const Metric& metric) {
  return {{Content::copies_of(metric.values_), metric.pieces_, metric.updates_}, metric.batch_, metric.has_batch_};
}

void UpdateRecord::put_back(Metric& metric, const Content& content) {
  metric.put_back({Content::copies_of(content.states.values), content.states.pieces, content.states.updates});
  metric.batch_ = content.batch;
  metric.has_batch_ = content.has_batch;
  if (metric.updates_ == 0) tell_records([&](UpdateRecord& record) { record.emptied(metric); });
}

// Records what metrics had accumulated before they changed for the first time since the record was made.
struct UndoRecord final : UpdateRecord {
  struct Before {
    std::weak_ptr<Metric> metric;
    Content content;
  };

  void before_change(Metric& metric) override {
    const std::lock_guard lock(mutex);
    Before& before = all[&metric];
    if (before.metric.lock().get() == &metric) return;  // unset, or an earlier metric at this address
    before = {metric.self(), content_of(metric)};
  }

  void restore() {
    const std::lock_guard lock(mutex);
    for (const auto& [address, before] : all) {
      if (const auto metric = before.metric.lock()) put_back(*metric, before.content);
    }
  }

  std::mutex mutex = {};  // replicas of a module compute their parts in threads
  std::map<const Metric*, Before> all = {};
};

UpdateUndo::UpdateUndo() : record_(std::make_shared<UndoRecord>()) {
  add_update_record(record_);
}

UpdateUndo::~UpdateUndo() = default;

void UpdateUndo::restore() {
  record_->restore();
}

UpdateRecords update_records() {
  return records_here;
}

void add_update_record(const std::shared_ptr<UpdateRecord>& record) {
  std::erase_if(records_here, [](const auto& one) { return one.expired(); });
  records_here.push_back(record);
}

UpdateRecords exchange_update_records(UpdateRecords records) {
  return std::exchange(records_here, std::move(records));
}

void Metric::before_change() {
  tell_records([this](UpdateRecord& record) { record.before_change(*this); });
}

Metric::Metric() : self_(this, [](Metric*) {}) {}

Metric::~Metric() = default;

size_t Metric::add_state(const std::string& name, StateReduce reduce, const at::Tensor& initial) {
  names_.push_back(name);
  reductions_.push_back(reduce);
  initial_.push_back(initial);
  values_.push_back(initial.defined() ? initial.clone() : initial);
  pieces_.emplace_back();
  return names_.size() - 1;
}

size_t Metric::add_decision(const std::string& name) {
  decisions_.push_back(add_state(name, StateReduce::max, at::zeros({}, at::kLong)));
  return decisions_.back();
}

// Leaves inference mode, in which an evaluation may run: training could not change tensors created there.
void Metric::reset() {
  const c10::InferenceMode plain(false);
  before_change();
  for (size_t k = 0; k < values_.size(); ++k) {
    if (initial_[k].defined()) values_[k] = initial_[k].clone();
    pieces_[k].clear();
  }
  updates_ = 0;
  batch_.clear();
  has_batch_ = false;
  tell_records([this](UpdateRecord& record) { record.emptied(*this); });
}

void Metric::append(size_t index, const at::Tensor& value) {
  append_own(index, value.detach().clone());
}

void Metric::append_own(size_t index, const at::Tensor& value) {
  if (value.numel() > 0) pieces_[index].push_back(value);
}

at::Tensor Metric::rows(size_t index) const {
  const auto& pieces = pieces_[index];
  if (pieces.empty()) return at::empty({0});
  return pieces.size() == 1 ? pieces[0] : at::cat(pieces);
}

int64_t updates_of_this_thread() {
  return updates_here;
}

void Metric::begin_update(at::Device device) {
  before_change();
  tell_records([this](UpdateRecord& record) { record.before_update(*this); });
  move_to(device);
  ++updates_;
  ++updates_here;
  has_batch_ = false;
}

void Metric::move_to(at::Device device) {
  const c10::InferenceMode plain(false);  // the initial values outlive the evaluation
  for (size_t k = 0; k < values_.size(); ++k) {
    if (initial_[k].defined() && initial_[k].device() != device) initial_[k] = initial_[k].to(device);
    if (values_[k].defined() && values_[k].device() != device) values_[k] = values_[k].to(device);
    for (at::Tensor& piece : pieces_[k]) {
      if (piece.device() == device) break;  // they are on one device
      piece = piece.to(device);
    }
  }
}

at::Tensor Metric::batch_value() const {
  if (!has_batch_) {
    throw Error(name() + ": the batch has no value of its own, because update() was called. Call the metric itself, " +
                "metric(preds, target), or log it with on_step = false.");
  }
  auto& self = *self_;  // compute() reads the states, which are restored before anything else reads them
  const Kept all = self.set_aside();
  self.set_states(batch_, 1);
  for (const size_t k : decisions_) self.values_[k] = reduced(StateReduce::max, self.values_[k], all.values[k]);
  try {
    const at::Tensor value = self.compute();
    self.put_back(all);
    return value;
  } catch (...) {
    self.put_back(all);
    throw;
  }
}

MetricStates Metric::states() const {
  MetricStates all;
  for (size_t k = 0; k < values_.size(); ++k) {
    all.push_back(reductions_[k] == StateReduce::cat ? rows(k) : values_[k].clone());
  }
  return all;
}

void Metric::set_states(const MetricStates& states, int64_t updates) {
  before_change();
  for (size_t k = 0; k < values_.size(); ++k) {
    if (reductions_[k] == StateReduce::cat) {
      pieces_[k].clear();
      if (states[k].numel() > 0) pieces_[k].push_back(states[k]);
    } else {
      values_[k] = states[k].clone();
    }
  }
  updates_ = updates;
}

void Metric::merge(const MetricStates& other, int64_t updates) {
  before_change();
  for (size_t k = 0; k < values_.size(); ++k) {
    if (reductions_[k] == StateReduce::cat) {
      if (other[k].numel() == 0) continue;
      pieces_[k].push_back(pieces_[k].empty() ? other[k] : other[k].to(pieces_[k].front().device()));
    } else {
      values_[k] = reduced(reductions_[k], values_[k], other[k]);
    }
  }
  updates_ += updates;
}

void Metric::take(Metric& other) {
  if (&other == this) return;
  merge(other.states(), other.updates_);
  if (has_batch_ && other.has_batch_) {
    const Kept all = set_aside();
    set_states(batch_, 1);
    merge(other.batch_, 1);
    batch_ = states();
    put_back(all);
  }
  other.reset();
}

State Metric::state_dict() const {
  State all;
  all.set("updates", updates_);
  const MetricStates now = states();
  for (size_t k = 0; k < now.size(); ++k) all.tensors[names_[k]] = now[k];
  return all;
}

void Metric::load_state_dict(const State& saved) {
  MetricStates states;
  for (size_t k = 0; k < names_.size(); ++k) {
    const at::Tensor& value = saved.tensor(names_[k]);
    if (reductions_[k] != StateReduce::cat && value.sizes() != initial_[k].sizes()) {
      throw CheckpointError(name() + ": the saved state \"" + names_[k] + "\" has the shape " + shape_of(value) +
                            ", this metric's is " + shape_of(initial_[k]) + ". Its options have changed.");
    }
    if (reductions_[k] != StateReduce::cat && value.scalar_type() != initial_[k].scalar_type()) {
      throw CheckpointError(name() + ": the saved state \"" + names_[k] + "\" has the type " +
                            c10::toString(value.scalar_type()) + ", this metric's is " +
                            c10::toString(initial_[k].scalar_type()) + ". Another version has saved it.");
    }
    states.push_back(value);
  }
  set_states(states, saved.get<int64_t>("updates"));
}

Metric::Kept Metric::set_aside() {
  before_change();
  Kept kept{std::move(values_), std::move(pieces_), updates_};
  values_.clear();
  for (const at::Tensor& initial : initial_) values_.push_back(initial.defined() ? initial.clone() : initial);
  pieces_.assign(names_.size(), {});
  updates_ = 0;
  return kept;
}

void Metric::put_back(const Kept& kept) {
  values_ = kept.values;
  pieces_ = kept.pieces;
  updates_ = kept.updates;
}

void Metric::keep_batch(const Kept& before) {
  batch_ = states();
  has_batch_ = true;
  const int64_t updates = updates_;
  put_back(before);
  if (updates_ == 0) {
    set_states(batch_, updates);
  } else {
    // States from a checkpoint move to the device of the batch, instead of every batch being copied to the CPU.
    for (const at::Tensor& value : batch_) {
      if (value.numel() > 0) move_to(value.device());
    }
    merge(batch_, updates);
  }
}

void TextMetric::update(const Texts& preds, const Texts& references) {
  if (preds.size() != references.size()) {
    throw Error(name() + ": " + count_of(static_cast<int64_t>(preds.size()), "prediction") + " for " +
                count_of(static_cast<int64_t>(references.size()), "reference") + ". Give one reference for each.");
  }
  std::vector<Texts> each;
  each.reserve(references.size());
  for (const std::string& text : references) each.push_back({text});
  update(preds, each);
}

}  // namespace levin::metrics
