#include "levin/trainer/metrics.h"

#include <ATen/ops/full_like.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>

#include <algorithm>
#include <limits>
#include <set>

#include "levin/core/options/error.h"
#include "levin/core/options/utf8.h"
#include "levin/loggers/logger.h"
#include "levin/metrics/metric.h"
#include "levin/metrics/update_sources.h"

namespace levin {

double reduced(ReduceFx reduce, double a, double b) {
  if (reduce == ReduceFx::min) return b < a || b != b ? b : a;
  if (reduce == ReduceFx::max) return b > a || b != b ? b : a;
  return a + b;
}

namespace {

double starting_total(ReduceFx reduce) {
  if (reduce == ReduceFx::min) return std::numeric_limits<double>::infinity();
  if (reduce == ReduceFx::max) return -std::numeric_limits<double>::infinity();
  return 0;
}

std::string where(const MetricStore::Place& place, std::string_view name) {
  return "log(\"" + cut_text(std::string(name)) + "\") in " + hook_name(place.hook);
}

// Reads CPU memory directly: no operator call, no autograd.
double cpu_scalar(const at::Tensor& value) {
  switch (value.is_neg() ? at::ScalarType::Undefined : value.scalar_type()) {  // negated when it is read
    case at::kFloat: return *static_cast<const float*>(value.const_data_ptr());
    case at::kDouble: return *static_cast<const double*>(value.const_data_ptr());
    case at::kLong: return static_cast<double>(*static_cast<const int64_t*>(value.const_data_ptr()));
    default: return value.item().toDouble();
  }
}

}  // namespace

void MetricStore::log(const Place& place, std::string_view name, const at::Tensor& value, const LogOptions& options,
                      const MetricStore* other) {
  Slot& s = slot(place, name, options, other);
  if (!value.defined() || value.numel() != 1) {
    const std::string seen = value.defined() ? count_of(value.numel(), "element") : "no tensor";
    throw Error(where(place, name) + ": a metric is one number, got " + seen + ". Reduce it first, e.g. value.mean().");
  }
  const auto weight = static_cast<double>(options.batch_size.value_or(place.batch_size));
  if (value.is_cpu()) {
    add(s, cpu_scalar(value), weight);
  } else {
    add(s, value, weight);
  }
}

void MetricStore::log(const Place& place, std::string_view name, double value, const LogOptions& options,
                      const MetricStore* other) {
  Slot& s = slot(place, name, options, other);
  add(s, value, static_cast<double>(options.batch_size.value_or(place.batch_size)));
}

MetricStore::Slot& MetricStore::slot(const Place& place, std::string_view name, const LogOptions& options,
                                     const MetricStore* other) {
  const auto is_it = [&](const Slot& candidate) {
    return candidate.name == name && candidate.hook == place.hook && candidate.dataloader_idx == place.dataloader_idx;
  };
  if (cursor_ >= slots_.size()) cursor_ = 0;
  if (slots_.empty() || !is_it(slots_[cursor_])) {
    const auto found = by_name_.find(name);
    const std::vector<size_t> none, &all = found == by_name_.end() ? none : found->second;
    const auto index = std::find_if(all.begin(), all.end(), [&](size_t k) { return is_it(slots_[k]); });
    if (index == all.end()) return make_slot(place, name, options, other);
    cursor_ = *index;
  }
  Slot& s = slots_[cursor_++];
  check_same_options(s, options);
  return s;
}

MetricStore::Slot& MetricStore::add_slot(Slot s) {
  by_name_[s.name].push_back(slots_.size());
  slots_.push_back(std::move(s));
  return slots_.back();
}

// Two slots clash if one of the full names of each is the same. A full name is a slot's name and up to two suffixes.
std::vector<size_t> MetricStore::slots_that_may_clash(const Slot& s) const {
  std::set<std::string> names;
  for (const bool plain : {false, true}) {
    for (const bool on_step : {false, true}) {
      const std::string full = full_name(s, on_step, plain);
      for (const std::string& name : {full, full.substr(0, full.rfind("/dataloader_idx_"))}) {
        names.insert(name);
        for (const std::string_view suffix : {"_step", "_epoch"}) {
          if (name.ends_with(suffix)) names.insert(name.substr(0, name.size() - suffix.size()));
        }
      }
    }
  }
  std::vector<size_t> slots;
  for (const std::string& name : names) {
    const auto found = by_name_.find(name);
    if (found != by_name_.end()) slots.insert(slots.end(), found->second.begin(), found->second.end());
  }
  std::sort(slots.begin(), slots.end());
  return slots;
}

// Callbacks, loggers and the progress bar know a value by its name.
void MetricStore::check_name_is_free(const Slot& s, const MetricStore* other) const {
  // A value of steps and epochs has three names: x, x_step and x_epoch.
  const auto names_of_slot = [](const Slot& slot) {
    return std::set{full_name(slot, false, true), full_name(slot, true, false), full_name(slot, false, false)};
  };
  const std::set<std::string> names = names_of_slot(s);
  const auto clash_with = [&](const Slot& taken) -> std::string {  // "" if there is none
    for (const std::string& name : names_of_slot(taken)) {
      if (!names.contains(name)) continue;
      const std::string what = taken.name == s.name
                                   ? " logs this name too"
                                   : " logs \"" + taken.name + "\", and both values would be called \"" + name + "\"";
      return "log(\"" + s.name + "\") in " + hook_name(s.hook) + ": " + hook_name(taken.hook) + what;
    }
    return "";
  };
  if (other != nullptr) {
    for (const size_t k : other->slots_that_may_clash(s)) {
      const Slot& taken = other->slots_[k];
      const std::string clash = clash_with(taken);
      if (clash.empty()) continue;
      throw Error(clash + ", and callbacks and loggers would get a mixture of the values of training and of " +
                  "validation. Use two names, e.g. \"train_" + s.name + "\" and \"val_" + s.name + "\".");
    }
  }
  for (const size_t k : slots_that_may_clash(s)) {
    const Slot& taken = slots_[k];
    const bool is_by_step = taken.name == s.name && !taken.on_epoch && !s.on_epoch;  // of each step the last one counts
    const std::string clash = is_by_step ? "" : clash_with(taken);
    if (clash.empty()) continue;
    const bool are_loaders =
        std::min(taken.dataloader_idx, s.dataloader_idx) >= 0 && taken.dataloader_idx != s.dataloader_idx;
    throw Error(clash + (are_loaders ? " for dataloader " + std::to_string(taken.dataloader_idx) : "") +
                ", and callbacks and loggers would get only one of the two values. " +
                (are_loaders ? "Use a name for each loader, or set .add_dataloader_idx to true."
                             : "Use two names, or log once."));
  }
}

MetricStore::Slot& MetricStore::make_slot(const Place& place, std::string_view name, const LogOptions& options,
                                          const MetricStore* other) {
  const LogRule rule = log_rule(place.hook);
  if (!rule.allowed) {
    throw Error(where(place, name) + ": nothing can be logged there. Log in a step, a batch hook or an epoch hook.");
  }
  if (name.empty()) throw Error(where(place, name) + ": a metric needs a name.");
  if (has_control_character(name)) {
    throw Error(where(place, name) +
                ": the name holds a line end or another control character, which no table can show. Choose another "
                "name.");
  }
  if (is_counter_name(name)) {
    throw Error(
        where(place, name) + ": " + std::string(name) +
        " is the name of the counter in the rows of the loggers, and monitors and file names of checkpoints read "
        "the counter. Choose another name.");
  }
  if (name.find("/dataloader_idx_") != std::string_view::npos) {
    throw Error(where(place, name) + ": names with /dataloader_idx_ are made by Levin itself. Choose another name.");
  }
  Slot s{place.hook,
         std::string(name),
         place.dataloader_idx,
         options.on_step.value_or(rule.default_on_step),
         options.on_epoch.value_or(rule.default_on_epoch),
         options.prog_bar,
         options.logger,
         options.add_dataloader_idx && place.num_dataloaders > 1,
         options.reduce_fx,
         options.sync_dist};
  any_step_sync_ = any_step_sync_ || (s.on_step && s.sync_dist);
  if (s.on_step && !rule.step_allowed) {
    throw Error(where(place, name) + ": on_step is not possible in this hook. Use .on_step = false, .on_epoch = true.");
  }
  s.total = starting_total(s.reduce);
  check_name_is_free(s, other);
  cursor_ = slots_.size() + 1;
  return add_slot(std::move(s));
}

void MetricStore::check_same_options(const Slot& slot, const LogOptions& options) {
  const bool same = slot.reduce == options.reduce_fx && slot.sync_dist == options.sync_dist &&
                    slot.prog_bar == options.prog_bar && slot.logger == options.logger &&
                    slot.on_step == options.on_step.value_or(slot.on_step) &&
                    slot.on_epoch == options.on_epoch.value_or(slot.on_epoch);
  if (same) return;
  throw Error("log(\"" + slot.name + "\") in " + hook_name(slot.hook) +
              ": it was logged before with different options. Use the same options each time, or a different name.");
}

void MetricStore::add(Slot& s, double value, double weight) {
  s.used = true;
  s.last = value;
  s.last_weight = weight;
  if (!s.on_epoch) return;
  if (s.reduce != ReduceFx::mean) {
    s.total = reduced(s.reduce, s.total, value);
  } else if (weight != 0) {  // a mean over nothing is NaN, and does not count
    s.total += value * weight;
  }
  s.weight += weight;
}

void MetricStore::add(Slot& s, const at::Tensor& value, double weight) {
  s.used = true;
  s.last_weight = weight;
  // A copy, also of float64: detached from the graph and from later in-place changes.
  s.device_last = value.detach().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  if (!s.on_epoch) return;
  const bool is_mean = s.reduce == ReduceFx::mean;
  if (is_mean && weight == 0) return;
  const at::Tensor share = is_mean ? s.device_last.mul(weight) : s.device_last;
  s.weight += weight;
  if (!s.device_total.defined()) {
    const bool continued = s.weight > weight;  // from a checkpoint: the sum so far is a number
    s.device_total = continued ? at::full_like(share, s.total) : share;
    if (!continued) return;
  }
  if (s.reduce == ReduceFx::min) {
    s.device_total = at::minimum(s.device_total, share);
  } else if (s.reduce == ReduceFx::max) {
    s.device_total = at::maximum(s.device_total, share);
  } else {
    s.device_total = s.device_total.add(share);
  }
}

double MetricStore::step_value(const Slot& s) {
  // Restored from a checkpoint and not logged since: the saved value.
  if (s.is_object && !(s.synced && s.object.expired())) return object_value(s, /*of_batch=*/true);
  return s.device_last.defined() ? s.device_last.item().toDouble() : s.last;
}

double MetricStore::epoch_value(const Slot& s) {
  if (s.is_object) return s.synced ? s.total : object_value(s, /*of_batch=*/false);
  const double total = s.device_total.defined() ? s.device_total.item().toDouble() : s.total;
  return s.reduce == ReduceFx::mean ? total / s.weight : total;
}

std::string MetricStore::full_name(const Slot& s, bool on_step, bool plain) {
  std::string name = s.name;
  if (!plain && s.on_step && s.on_epoch) name += on_step ? "_step" : "_epoch";
  if (s.add_suffix) name += "/dataloader_idx_" + std::to_string(s.dataloader_idx);
  return name;
}

std::optional<double> MetricStore::value_of(const Slot& s, bool on_step, bool failing) {
  try {
    return on_step ? step_value(s) : epoch_value(s);
  } catch (const std::exception&) {
    if (!failing) throw;
    return std::nullopt;
  }
}

template <class Keep>
void MetricStore::collect(bool on_step, Metrics& metrics, Keep keep, bool failing) const {
  for (const Slot& s : slots_) {
    if (!has_value(s, on_step) || !keep(s)) continue;
    if (const auto value = value_of(s, on_step, failing)) metrics[full_name(s, on_step, false)] = *value;
  }
}

Metrics MetricStore::logged(bool on_step, std::optional<int64_t> only) const {
  Metrics metrics;
  collect(on_step, metrics, [&](const Slot& s) { return s.logger && (!only || s.dataloader_idx == *only); });
  return metrics;
}

MetricRow MetricStore::step_row() {
  if (!fits(row_)) row_ = row_slots();
  MetricRow row{row_.names};
  row.values.reserve(row_.by_name.size());
  for (const size_t k : row_.by_name) row.values.push_back(step_value(slots_[k]));
  return row;
}

bool MetricStore::fits(const RowSlots& row) const {
  if (row.names == nullptr) return false;
  size_t found = 0;
  for (size_t k = 0; k < slots_.size(); ++k) {
    if (!in_step_row(slots_[k])) continue;
    if (found == row.used.size() || row.used[found++] != k) return false;
  }
  return found == row.used.size();
}

MetricStore::RowSlots MetricStore::row_slots() const {
  RowSlots row;
  std::map<std::string, size_t> by_name;
  for (size_t k = 0; k < slots_.size(); ++k) {
    if (!in_step_row(slots_[k])) continue;
    row.used.push_back(k);
    by_name[full_name(slots_[k], true, false)] = k;
  }
  std::vector<std::string> names;
  for (const auto& [name, slot] : by_name) {
    names.push_back(name);
    row.by_name.push_back(slot);
  }
  row.names = std::make_shared<const std::vector<std::string>>(std::move(names));
  return row;
}

Metrics MetricStore::shown(bool on_step, bool failing) const {
  Metrics metrics;
  collect(
      on_step, metrics, [](const Slot& s) { return s.prog_bar; }, failing);
  return metrics;
}

Metrics MetricStore::monitored(bool on_step, bool training, bool failing) const {
  Metrics metrics;
  if (on_step && !training) return metrics;
  for (const Slot& s : slots_) {
    if (!s.used || !(on_step ? s.on_step : s.on_epoch)) continue;
    const auto value = value_of(s, on_step, failing);
    if (!value) continue;
    metrics[full_name(s, on_step, true)] = *value;
    metrics[full_name(s, on_step, false)] = *value;
  }
  return metrics;
}

void MetricStore::drop_totals() {
  for (Slot& s : slots_) {
    s.states = State();
    if (s.is_object) continue;
    s.weight = 0;
    s.total = starting_total(s.reduce);
    s.device_total = at::Tensor();
  }
}

void MetricStore::reset() {
  for (Slot& s : slots_) {
    s.used = s.synced = false;
    s.last = s.weight = 0;
    s.total = starting_total(s.reduce);
    s.device_last = s.device_total = at::Tensor();
    s.states = State();
    if (const auto object = s.object.lock()) {
      metrics::check_reset(*object, "log(\"" + s.name + "\") in " + hook_name(s.hook));
      object->reset();
    }
  }
  cursor_ = 0;
}

}  // namespace levin
