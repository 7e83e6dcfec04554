// Reduces metrics over ranks: all values of an epoch in one message.
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "levin/core/random.h"
#include "levin/metrics/metric.h"
#include "levin/strategies/rank_collectives.h"
#include "levin/trainer/metrics.h"

namespace levin {

namespace {

// A message of fixed size, so that ranks that differ in their metrics can still read each other's: a count, a hash of
// the names, then two numbers per metric. If they do not fit, or the ranks differ, a second message has the numbers.
constexpr int64_t kHeader = 2;
constexpr int64_t kAtOnce = 64;

// 52 bits of it fit into a double.
double hash_of(const std::string& text) {
  uint64_t mixed = 0;
  for (const char letter : text) mixed = mix_seed(mixed, static_cast<unsigned char>(letter));
  return static_cast<double>(mixed >> 12);
}

bool all_begin_alike(const at::Tensor& all) {
  for (int64_t rank = 1; rank < all.size(0); ++rank) {
    for (int64_t k = 0; k < kHeader; ++k) {
      if (all[rank][k].item<double>() != all[0][k].item<double>()) return false;
    }
  }
  return true;
}

// A total and the number of samples in it.
double value_of_pair(ReduceFx reduce, const double* pair) {
  return reduce == ReduceFx::mean ? pair[0] / pair[1] : pair[0];
}

// But for the rounding of sums.
bool is_same(double a, double b) {
  return a == b || (a != a && b != b) || std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b));
}

}  // namespace

std::vector<MetricStore::Shared> MetricStore::waiting(bool on_step) {
  std::vector<Shared> shared;
  for (Slot& s : slots_) {
    if (!s.used || !(on_step ? s.on_step && s.sync_dist : s.on_epoch && !s.synced)) continue;
    shared.push_back({&s, s.is_object && !s.object.expired() ? object_of(s)->reductions().size() : 0});
  }
  return shared;
}

std::vector<double> MetricStore::numbers_of(const std::vector<Shared>& shared, bool on_step) {
  std::vector<double> numbers;
  for (const Shared& one : shared) {
    const Slot& s = *one.slot;
    if (on_step) {
      numbers.push_back(step_value(s));
      numbers.push_back(s.last_weight);
    } else {
      numbers.push_back(s.device_total.defined() ? s.device_total.item().toDouble() : s.total);
      numbers.push_back(s.weight);
    }
  }
  return numbers;
}

// (world, count, 2) of two numbers for each of `shared`, which are then the same on every rank, in one order.
at::Tensor MetricStore::exchange(RankCollectives& ranks, std::vector<Shared>& shared, bool on_step,
                                 const std::vector<int64_t>& idle_loaders) {
  std::string keys;
  for (const Shared& s : shared) keys += key_of(*s.slot) + '\n';
  std::vector<double> own = numbers_of(shared, on_step);
  at::Tensor message = at::full({kHeader + 2 * kAtOnce}, 0.0, at::kDouble);
  auto* numbers = message.mutable_data_ptr<double>();
  numbers[0] = static_cast<double>(shared.size());
  numbers[1] = hash_of(keys);
  std::copy_n(own.begin(), std::min<size_t>(own.size(), 2 * kAtOnce), numbers + kHeader);
  at::Tensor all = ranks.gather(message);
  const bool alike = all_begin_alike(all);
  if (!alike) {
    agree(ranks, shared, on_step, idle_loaders);
    own = numbers_of(shared, on_step);
  }
  const auto count = static_cast<int64_t>(shared.size());
  if (alike && count <= kAtOnce) {
    return all.narrow(1, kHeader, 2 * count).reshape({ranks.world_size(), count, 2}).contiguous();
  }
  message = at::full({2 * count}, 0.0, at::kDouble);
  std::copy(own.begin(), own.end(), message.mutable_data_ptr<double>());
  return ranks.gather(message).reshape({ranks.world_size(), count, 2}).contiguous();
}

void MetricStore::sync_epoch(RankCollectives& ranks, bool keep_states, const std::vector<int64_t>& idle_loaders) {
  std::vector<Shared> shared = waiting(/*on_step=*/false);
  const at::Tensor all = exchange(ranks, shared, /*on_step=*/false, idle_loaders);
  sync_objects(ranks, shared, keep_states);
  const auto* numbers = all.const_data_ptr<double>();
  for (size_t k = 0; k < shared.size(); ++k) {
    Slot& s = *shared[k].slot;
    if (std::exchange(s.synced, true)) continue;
    s.device_total = at::Tensor();
    bool first = true;
    double first_value = 0;
    for (size_t rank = 0; rank < static_cast<size_t>(all.size(0)); ++rank) {
      if (shared[k].lacks(rank)) continue;
      const double* pair = numbers + (rank * shared.size() + k) * 2;
      if (std::exchange(first, false)) {
        s.total = pair[0];
        s.weight = pair[1];
        first_value = value_of_pair(s.reduce, pair);
      } else if (s.sync_dist) {
        s.total = reduced(s.reduce, s.total, pair[0]);
        s.weight += pair[1];
      } else if (!s.is_object && !is_same(first_value, value_of_pair(s.reduce, pair))) {
        s.differs = true;
      }
    }
  }
}

std::vector<std::string> MetricStore::take_unsynced() {
  std::vector<std::string> names;
  for (Slot& s : slots_) {
    if (!s.differs || std::exchange(s.named, true)) continue;
    if (std::find(names.begin(), names.end(), s.name) == names.end()) names.push_back(s.name);
  }
  return names;
}

void MetricStore::sync_step(RankCollectives& ranks) {
  std::vector<Shared> shared = waiting(/*on_step=*/true);
  const at::Tensor all = exchange(ranks, shared, /*on_step=*/true, {});
  const auto* numbers = all.const_data_ptr<double>();
  for (size_t k = 0; k < shared.size(); ++k) {
    Slot& s = *shared[k].slot;
    s.device_last = at::Tensor();
    double total = 0;
    double weight = 0;
    for (int64_t rank = 0; rank < all.size(0); ++rank) {
      const double* pair = numbers + (static_cast<size_t>(rank) * shared.size() + k) * 2;
      const bool mean = s.reduce == ReduceFx::mean;
      const double value = mean ? pair[0] * pair[1] : pair[0];
      total = rank == 0 ? value : reduced(s.reduce, total, value);
      weight += pair[1];
    }
    s.last = s.reduce == ReduceFx::mean ? total / weight : total;
  }
}

}  // namespace levin
