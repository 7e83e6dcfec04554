#include "levin/trainer/step/step_values.h"

#include <ATen/ops/full_like.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/tensors.h"
#include "levin/metrics/metric.h"
#include "levin/strategies/device/scatter_gather.h"
#include "levin/trainer/step/step_core.h"
#include "levin/trainer/step/step_notes.h"

namespace levin {

namespace {

class LiveContext final : public StepContext {
 public:
  explicit LiveContext(StepCore& core) : core_(core) {}
  void log(std::string_view name, const at::Tensor& value, const LogOptions& options) override {
    core_.hooks.log(name, value, options);
  }
  void log(std::string_view name, double value, const LogOptions& options) override {
    core_.hooks.log(name, value, options);
  }
  void log(std::string_view name, metrics::Metric& metric, const LogOptions& options) override {
    core_.hooks.log(name, metric, options);
  }
  void publish(std::string_view name, const at::Tensor& value) override {
    check_output_name(name, core_.outputs.has(name));
    core_.outputs.add(std::string(name), value.defined() && value.requires_grad() ? value.detach() : value);
  }
  void set_loss_weight(const at::Tensor& weight) override { core_.loss_weights.weight = weight.detach(); }

 private:
  StepCore& core_;
};

}  // namespace

StepContext& context_of(StepCore& core) {
  if (StepShare* share = this_share()) return *share;
  return *core.context;
}

std::unique_ptr<StepContext> make_live_context(StepCore& core) {
  return std::make_unique<LiveContext>(core);
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
  bool odd = false;  // not one number: MetricStore reports what is wrong
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

  // The module's own metric takes what the metrics of the other replicas have accumulated.
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

void log_shares(StepCore& core, const std::vector<StepShare>& shares) {
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
      context_of(core).log(key.first, *merged.metric, merged.options);
      continue;
    }
    const bool mean = merged.options.reduce_fx == ReduceFx::mean;
    merged.options.batch_size = static_cast<int64_t>(merged.weight);
    if (merged.value.defined()) {
      const at::Tensor value = mean && !merged.odd ? merged.value.div(merged.weight) : merged.value;
      context_of(core).log(key.first, value, merged.options);  // to the enclosing share, if there is one
    } else {
      context_of(core).log(key.first, mean && merged.weight > 0 ? merged.number / merged.weight : merged.number,
                           merged.options);
    }
  }
}

namespace {

using Outputs = StepContext::Outputs;

const at::Tensor* find(const Outputs& outputs, const std::string& name) {
  const auto found = std::find_if(outputs.begin(), outputs.end(), [&](const auto& one) { return one.first == name; });
  return found == outputs.end() ? nullptr : &found->second;
}

at::Tensor joined(const std::string& name, const std::vector<StepShare>& shares) {
  std::vector<at::Tensor> parts;
  std::vector<int64_t> sizes;
  bool are_numbers = true, are_rows = true;
  for (const StepShare& share : shares) {
    const at::Tensor* own = find(share.outputs, name);
    if (own == nullptr || !own->defined()) {
      throw Error(about_output(name) + "only some parts of the batch have published it. Publish it in every step, or " +
                  "compute batches whole.");
    }
    are_numbers = are_numbers && own->dim() == 0 && own->is_floating_point();
    are_rows = are_rows && own->dim() > 0 && own->size(0) == share.samples;
    parts.push_back(*own);
    sizes.push_back(share.samples);
  }
  if (are_rows) return gather(parts, shares[0].slot);
  if (are_numbers) return mean_loss(parts, sizes, shares[0].slot);
  throw Error(about_output(name) + "a part of " + count_of(sizes[0], "sample") + " has published the shape " +
              shape_text(parts[0].sizes()) +
              ", and parts can be joined where the first dimension is the samples, or where each is one floating point "
              "number. Publish one of these.");
}

}  // namespace

void join_outputs(StepCore& core, const std::vector<StepShare>& shares) {
  Outputs first;  // of which each stands for the parts' outputs of its name
  for (const StepShare& share : shares) {
    for (const auto& output : share.outputs) {
      if (find(first, output.first) == nullptr) first.push_back(output);
    }
  }
  for (const auto& [name, value] : first) {
    context_of(core).publish(name, shares.size() == 1 ? value : joined(name, shares));  // to an enclosing share, if any
  }
}

void repeat_notes(StepCore& core, const StepNotes& notes) {
  for (const auto& value : notes.logged) {
    core.hooks.log_replayed(value.hook, value.name, value.value, value.options);
  }
  for (const auto& [name, value] : notes.outputs) {
    core.outputs.add(name, value.defined() ? value.clone() : value);
  }
}

}  // namespace levin
