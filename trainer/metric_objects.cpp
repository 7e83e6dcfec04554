// Metrics that accumulate by themselves, in a MetricStore: logged, reduced over ranks, saved.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/metrics/metric.h"
#include "levin/metrics/update_sources.h"
#include "levin/strategies/rank_collectives.h"
#include "levin/trainer/metrics.h"

namespace levin {

namespace {

using metrics::Metric;
using metrics::MetricStates;

std::string about(const std::string& name, Hook hook) {
  return "log(\"" + name + "\") in " + hook_name(hook);
}

// What this rank has accumulated, as bytes, and the numbers to read them by: for each state its type, its dimensions
// and the metric's updates; zeros for a metric that this rank has not logged.
using StatesOfRank = std::pair<MetricStates, int64_t>;  // and its updates
constexpr int64_t kMaxDims = 5;
constexpr int64_t kStateHeader = 3 + kMaxDims;

struct Packed {
  std::vector<int64_t> headers = {};
  std::string bytes = {};

  void add(const Metric& metric) {
    for (const at::Tensor& state : metric.states()) {
      const at::Tensor here = state.cpu().contiguous();
      headers.push_back(static_cast<int64_t>(here.scalar_type()));
      headers.push_back(here.dim());
      for (int64_t d = 0; d < kMaxDims; ++d) headers.push_back(d < here.dim() ? here.size(d) : 0);
      headers.push_back(metric.update_count());
      bytes.append(static_cast<const char*>(here.const_data_ptr()), here.nbytes());
    }
  }
  void add_nothing(size_t states) { headers.resize(headers.size() + states * kStateHeader, 0); }
};

// Reads one rank's states back in the order in which they were packed.
class Unpacking {
 public:
  Unpacking(const int64_t* headers, const uint8_t* bytes) : headers_(headers), bytes_(bytes) {}

  StatesOfRank next(size_t count) {
    StatesOfRank part;
    for (size_t k = 0; k < count; ++k, headers_ += kStateHeader) {
      const std::vector<int64_t> sizes(headers_ + 2, headers_ + 2 + headers_[1]);
      at::Tensor state = at::empty(sizes, static_cast<at::ScalarType>(headers_[0]));
      if (state.nbytes() > 0) std::memcpy(state.mutable_data_ptr(), bytes_, state.nbytes());
      bytes_ += state.nbytes();
      part.second = headers_[kStateHeader - 1];
      part.first.push_back(std::move(state));
    }
    return part;
  }
  /// Over what add_nothing() has left.
  void skip(size_t count) { headers_ += static_cast<int64_t>(count) * kStateHeader; }

 private:
  const int64_t* headers_;
  const uint8_t* bytes_;
};

struct AllStates {
  at::Tensor headers = {};  // (ranks, states * kStateHeader)
  at::Tensor bytes = {};    // (ranks, the longest)
};

AllStates gather_states(RankCollectives& ranks, const Packed& own) {
  AllStates all;
  at::Tensor headers = at::empty({static_cast<int64_t>(own.headers.size())}, at::kLong);
  std::memcpy(headers.mutable_data_ptr(), own.headers.data(), headers.nbytes());
  at::Tensor length = at::full({1}, static_cast<int64_t>(own.bytes.size()), at::kLong);
  all.headers = ranks.gather(headers).contiguous();
  const int64_t longest = ranks.gather(length).max().item<int64_t>();
  at::Tensor bytes = at::full({std::max<int64_t>(1, longest)}, 0, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), own.bytes.data(), own.bytes.size());
  all.bytes = ranks.gather(bytes).contiguous();
  return all;
}

}  // namespace

// What is wrong if a metric is used here and in `other`: it is reset with each, and counts the samples of both.
void MetricStore::check_object_is_free(const Slot& s, const Metric& metric, const MetricStore* other) const {
  const auto is_used_in = [&](const Slot& taken) { return &taken != &s && taken.object.lock().get() == &metric; };
  const std::string about_it = about(s.name, s.hook) + ": this " + metric.name() + " is also logged as \"";
  for (const Slot& taken : slots_) {
    const bool same_loader =
        taken.dataloader_idx == s.dataloader_idx || std::min(taken.dataloader_idx, s.dataloader_idx) < 0;
    if (same_loader || !is_used_in(taken)) continue;
    throw Error(
        about_it + taken.name + "\" for dataloader " + std::to_string(taken.dataloader_idx) +
        ", and its value would contain the samples of both loaders. Make a metric object for each loader, and " +
        "choose it by dataloader_idx().");
  }
  if (other == nullptr) return;
  for (const Slot& taken : other->slots_) {
    if (!is_used_in(taken)) continue;
    throw Error(about_it + taken.name + "\" in " + hook_name(taken.hook) +
                ", and its values would contain the samples of both. Make one metric object for training and one for "
                "validation.");
  }
}

void MetricStore::log(const Place& place, std::string_view name, Metric& metric, const LogOptions& options,
                      const MetricStore* other) {
  Slot& s = slot(place, name, options, other);
  if (options.reduce_fx != ReduceFx::mean) {
    throw Error(about(s.name, s.hook) + ": reduce_fx does not apply to " + metric.name() +
                ", which accumulates by itself. Leave it out.");
  }
  if (s.used && !s.is_object) {
    throw Error(about(s.name, s.hook) + ": it was logged as a number before, and now as " + metric.name() +
                ". Use another name for one of the two.");
  }
  if (s.on_step && !metric.has_batch_value()) {
    throw Error(about(s.name, s.hook) + ": with on_step the batch's own value is logged, and " + metric.name() +
                ".update() does not keep it. Call the metric itself, metric(preds, target), or log it with .on_step = "
                "false, .on_epoch = true.");
  }
  if (s.object.lock().get() != &metric) {
    check_object_is_free(s, metric, other);
    // On ranks other than 0 a metric that was restored has no states and no object yet.
    const bool is_restored = s.synced && s.object.expired();
    if (s.used && s.states.empty() && !is_restored && object_of(s).get() != &metric) {
      throw Error(about(s.name, s.hook) + ": it was logged with a different " + metric.name() +
                  " object before in this epoch, whose samples would be lost. Use one object for each name.");
    }
  }
  if (s.add_suffix) metrics::claim_for_loader(metric, about(s.name, s.hook), s.dataloader_idx);
  if (!s.states.empty()) {  // what was accumulated before the checkpoint comes first
    const MetricStates since = metric.states();
    const int64_t updates = metric.update_count();
    metric.load_state_dict(s.states);
    metric.merge(since, updates);
    s.states = State();
  }
  s.used = s.is_object = true;
  s.synced = false;
  s.object = metric.self();
}

std::shared_ptr<Metric> MetricStore::object_of(const Slot& slot) {
  if (auto object = slot.object.lock()) return object;
  throw Error(about(slot.name, slot.hook) +
              ": the metric was destroyed before the epoch ended. Make it a member of the module instead of a variable "
              "of the step.");
}

double MetricStore::number_of(const Slot& slot, const at::Tensor& value) {
  if (value.numel() != 1) {
    throw Error(about(slot.name, slot.hook) + ": " + object_of(slot)->name() + " gives " +
                count_of(value.numel(), "value") +
                ", and a logged metric is one number. Choose an average (macro, micro, weighted), or log the elements "
                "of compute() in on_validation_epoch_end.");
  }
  return value.item().toDouble();
}

double MetricStore::object_value(const Slot& slot, bool of_batch) {
  const auto metric = object_of(slot);
  try {
    return number_of(slot, of_batch ? metric->batch_value() : metric->compute());
  } catch (const metrics::TooFewSamplesError& error) {
    Console::instance().warn(about(slot.name, slot.hook) + ": " + error.what() + " Its value is NaN.");
    return std::numeric_limits<double>::quiet_NaN();
  }
}

State MetricStore::object_state(const Slot& slot) {
  // Ranks other than 0 have dropped what a checkpoint held of a metric that they have not logged since.
  const bool is_restored = slot.synced && slot.object.expired();
  return !slot.states.empty() || is_restored ? slot.states : object_of(slot)->state_dict();
}

// Some metrics have no value yet within an epoch (a variance of one sample).
double MetricStore::object_value_so_far(const Slot& slot) {
  if (!slot.used || slot.synced) return slot.total;
  try {
    return number_of(slot, object_of(slot)->compute());  // without a warning
  } catch (const std::exception&) {
    return std::numeric_limits<double>::quiet_NaN();
  }
}

void MetricStore::sync_objects(RankCollectives& ranks, const std::vector<Shared>& shared, bool keep_states) {
  const auto own_rank = static_cast<size_t>(ranks.rank());
  std::vector<const Shared*> objects;
  Packed packed;
  bool some_lack = false;
  for (const Shared& s : shared) {
    if (!s.slot->is_object) continue;
    objects.push_back(&s);
    some_lack = some_lack || !s.lacking.empty();
    s.lacks(own_rank) ? packed.add_nothing(s.states) : packed.add(*object_of(*s.slot));
  }
  if (objects.empty()) return;
  const AllStates all = gather_states(ranks, packed);
  std::vector<Unpacking> of_rank;
  for (int64_t rank = 0; rank < all.headers.size(0); ++rank) {
    of_rank.emplace_back(all.headers[rank].const_data_ptr<int64_t>(), all.bytes[rank].const_data_ptr<uint8_t>());
  }
  std::exception_ptr failed = nullptr;
  try {
    for (const Shared* s : objects) {
      std::vector<StatesOfRank> parts;
      for (size_t rank = 0; rank < of_rank.size(); ++rank) {
        s->lacks(rank) ? of_rank[rank].skip(s->states) : parts.push_back(of_rank[rank].next(s->states));
      }
      if (!s->lacks(own_rank)) merge_object(*s->slot, parts, keep_states);
    }
  } catch (...) {
    if (!some_lack) throw;
    failed = std::current_exception();
  }
  if (some_lack) take_values(ranks, objects, failed);
}

void MetricStore::merge_object(Slot& slot, const std::vector<StatesOfRank>& parts, bool keep_states) {
  Metric& metric = *object_of(slot);
  const MetricStates own = metric.states();
  const int64_t own_updates = metric.update_count();
  metric.set_states(parts[0].first, parts[0].second);
  for (size_t k = 1; k < parts.size(); ++k) metric.merge(parts[k].first, parts[k].second);
  if (keep_states) slot.states = metric.state_dict();
  slot.total = keep_states ? object_value_so_far(slot) : object_value(slot, /*of_batch=*/false);
  metric.set_states(own, own_updates);
  slot.synced = true;
}

// A rank that has not logged a metric cannot compute it, as it may not even have it: it takes another rank's value.
void MetricStore::take_values(RankCollectives& ranks, const std::vector<const Shared*>& objects,
                              const std::exception_ptr& failed) {
  const auto own_rank = static_cast<size_t>(ranks.rank());
  at::Tensor values = at::full({static_cast<int64_t>(objects.size()) + 1}, 0.0, at::kDouble);
  auto* own = values.mutable_data_ptr<double>();
  for (size_t k = 0; k < objects.size(); ++k) own[k] = objects[k]->slot->total;
  own[objects.size()] = failed ? 1 : 0;
  const at::Tensor all = ranks.gather(values).contiguous();
  if (failed) std::rethrow_exception(failed);
  for (size_t k = 0; k < objects.size(); ++k) {
    if (!objects[k]->lacks(own_rank)) continue;
    Slot& slot = *objects[k]->slot;
    size_t rank = 0;
    while (objects[k]->lacks(rank)) ++rank;
    const auto* of_rank = all[static_cast<int64_t>(rank)].const_data_ptr<double>();
    if (of_rank[objects.size()] != 0) {
      throw Error("log: rank " + std::to_string(rank) +
                  " cannot compute a metric of this epoch that this rank has had no batch for. See that rank's error.");
    }
    slot.total = of_rank[k];
    slot.synced = true;
  }
}

}  // namespace levin
