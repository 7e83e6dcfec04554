#include "levin/trainer/step/log_value.h"

#include <ATen/ops/full_like.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>

#include <map>
#include <string>
#include <utility>

#include "levin/metrics/metric.h"
#include "levin/trainer/run/run.h"
#include "levin/trainer/step/step_notes.h"

namespace levin {

void log_value(Run& run, std::string_view name, const at::Tensor& value, const LogOptions& options) {
  if (run.fit.recording != nullptr) return note_logged(run, name, value, options);
  if (StepShare* share = this_share()) return share->log(name, value, options);
  if (run.plan.logging) run.log_metric(name, value, options);
}

void log_value(Run& run, std::string_view name, double value, const LogOptions& options) {
  if (run.fit.recording != nullptr) refuse_logged(run, name);  // or goes on
  if (StepShare* share = this_share()) return share->log(name, value, options);
  if (run.plan.logging) run.log_metric(name, value, options);
}

void log_value(Run& run, std::string_view name, metrics::Metric& metric, const LogOptions& options) {
  if (run.fit.recording != nullptr) refuse_logged(run, name);  // or goes on
  if (StepShare* share = this_share()) return share->log(name, metric, options);
  if (run.plan.logging) run.log_metric(name, metric, options);
}

namespace {

using Logged = StepShare::Logged;

at::Tensor reduced(ReduceFx reduce, const at::Tensor& a, const at::Tensor& b) {
  if (reduce == ReduceFx::min) return at::minimum(a, b);
  if (reduce == ReduceFx::max) return at::maximum(a, b);
  return a.add(b);
}

// One value of the batch from the values of its shares; without access to a device if all are numbers.
struct Merged {
  LogOptions options = {};
  double number = 0;
  at::Tensor value = {};  // the running sum, if one is on a device
  double weight = 0;
  bool odd = false;  // not one number: MetricStore says what is wrong
  metrics::Metric* metric = nullptr;

  void add(const Logged& entry, const DeviceSlot& slot) {
    if (entry.metric != nullptr) return add(*entry.metric, entry.options);
    odd = odd || (entry.value.defined() && entry.value.numel() != 1);
    if (odd) {
      value = entry.value;
      return;
    }
    const bool first = weight == 0;
    const bool mean = entry.options.reduce_fx == ReduceFx::mean;
    if (first) options = entry.options;
    if (mean && entry.weight == 0) return;
    const double factor = mean ? entry.weight : 1;
    if (entry.value.defined() && !value.defined() && !first) value = at::full_like(entry.value, number);
    if (value.defined() || entry.value.defined()) {
      const at::Tensor own =
          entry.value.defined() ? move_to(entry.value, slot).mul(factor) : at::full_like(value, entry.number * factor);
      value = first ? own : reduced(entry.options.reduce_fx, move_to(value, slot), own);
    } else {
      number = first ? entry.number * factor : reduced(entry.options.reduce_fx, number, entry.number * factor);
    }
    weight += entry.weight;
  }

  // The module's own metric takes what those of the other replicas have accumulated.
  void add(metrics::Metric& other, const LogOptions& logged_with) {
    options = logged_with;
    if (metric == nullptr) {
      metric = &other;
    } else {
      metric->take(other);
    }
  }
};

}  // namespace

void log_shares(Run& run, const std::vector<StepShare>& shares) {
  if (!run.plan.logging) return;
  std::vector<std::pair<std::string, int>> order;  // as the first share that logged it did
  std::map<std::pair<std::string, int>, Merged> all;
  for (const StepShare& share : shares) {
    std::map<std::string, int> seen;
    for (const Logged& entry : share.logged) {
      const auto key = std::pair(entry.name, seen[entry.name]++);
      if (!all.contains(key)) order.push_back(key);
      all[key].add(entry, shares[0].slot);
    }
  }
  for (const auto& key : order) {
    Merged& merged = all[key];
    if (merged.metric != nullptr) {
      log_value(run, key.first, *merged.metric, merged.options);
      continue;
    }
    const bool mean = merged.options.reduce_fx == ReduceFx::mean;
    merged.options.batch_size = static_cast<int64_t>(merged.weight);
    if (merged.value.defined()) {
      const at::Tensor value = mean && !merged.odd ? merged.value.div(merged.weight) : merged.value;
      log_value(run, key.first, value, merged.options);  // to the enclosing share, if there is one
    } else {
      log_value(run, key.first, mean && merged.weight > 0 ? merged.number / merged.weight : merged.number,
                merged.options);
    }
  }
}

}  // namespace levin
