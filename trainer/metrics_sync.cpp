// Reduces metrics over ranks: all values of an epoch in one message.
#include <ATen/ops/full.h>

#include <algorithm>
#include <utility>

#include "levin/core/error.h"
#include "levin/core/seed.h"
#include "levin/strategies/rank_collectives.h"
#include "levin/trainer/metrics.h"

namespace levin {

namespace {

// A message of fixed size, so that ranks that differ in their metrics can still read each other's: a count, a hash of
// the names, then two numbers per metric. If they do not fit, the rest is sent in a second message.
constexpr int64_t kHeader = 2;
constexpr int64_t kAtOnce = 64;

// 52 bits of it fit into a double.
double hash_of(const std::string& text) {
  uint64_t mixed = 0;
  for (const char letter : text) mixed = mix_seed(mixed, static_cast<unsigned char>(letter));
  return static_cast<double>(mixed >> 12);
}

void check_same_names(RankCollectives& ranks, const at::Tensor& all, const std::string& names) {
  bool same = true;
  for (int64_t rank = 1; rank < all.size(0); ++rank) {
    same = same && all[rank][0].item<double>() == all[0][0].item<double>() &&
           all[rank][1].item<double>() == all[0][1].item<double>();
  }
  if (same) return;
  std::string seen;
  const auto texts = ranks.gather(names);
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    seen +=
        (rank > 0 ? "; rank " : "rank ") + std::to_string(rank) + ": " + (texts[rank].empty() ? "none" : texts[rank]);
  }
  throw Error("log: the ranks have logged different metrics in this epoch (" + seen +
              "). Log the same names on every rank, and give each at least one batch.");
}

// (world, count, 2) of the (count, 2) numbers in `own`, which are those of `names` on every rank.
at::Tensor exchange(RankCollectives& ranks, const std::vector<double>& own, const std::string& names) {
  const auto count = static_cast<int64_t>(own.size() / 2);
  at::Tensor message = at::full({kHeader + 2 * kAtOnce}, 0.0, at::kDouble);
  auto* numbers = message.mutable_data_ptr<double>();
  numbers[0] = static_cast<double>(count);
  numbers[1] = hash_of(names);
  std::copy_n(own.begin(), 2 * std::min(count, kAtOnce), numbers + kHeader);
  at::Tensor all = ranks.gather(message);
  check_same_names(ranks, all, names);
  if (count <= kAtOnce) return all.narrow(1, kHeader, 2 * count).reshape({ranks.world_size(), count, 2}).contiguous();
  message = at::full({2 * count}, 0.0, at::kDouble);
  std::copy_n(own.begin(), 2 * count, message.mutable_data_ptr<double>());
  return ranks.gather(message).reshape({ranks.world_size(), count, 2}).contiguous();
}

}  // namespace

void MetricStore::sync_epoch(RankCollectives& ranks, bool keep_states) {
  std::vector<Slot*> slots;
  std::vector<double> own;
  std::string names;
  for (Slot& s : slots_) {
    if (!s.used || !s.on_epoch || s.synced) continue;
    slots.push_back(&s);
    names += (names.empty() ? "" : ", ") + full_name(s, false, false);
    own.push_back(s.device_total.defined() ? s.device_total.item().toDouble() : s.total);
    own.push_back(s.weight);
  }
  const at::Tensor all = exchange(ranks, own, names);
  sync_objects(ranks, keep_states);
  const auto* numbers = all.const_data_ptr<double>();
  for (size_t k = 0; k < slots.size(); ++k) {
    Slot& s = *slots[k];
    if (std::exchange(s.synced, true)) continue;
    s.device_total = at::Tensor();
    for (int64_t rank = 0; rank < all.size(0); ++rank) {
      const double* pair = numbers + (static_cast<size_t>(rank) * slots.size() + k) * 2;
      if (rank == 0) {
        s.total = pair[0];
        s.weight = pair[1];
      } else if (s.sync_dist) {
        s.total = reduced(s.reduce, s.total, pair[0]);
        s.weight += pair[1];
      }
    }
  }
}

void MetricStore::sync_step(RankCollectives& ranks) {
  std::vector<Slot*> slots;
  std::vector<double> own;
  std::string names;
  for (Slot& s : slots_) {
    if (!s.used || !s.on_step || !s.sync_dist) continue;
    slots.push_back(&s);
    names += (names.empty() ? "" : ", ") + full_name(s, true, false);
    own.push_back(step_value(s));
    own.push_back(s.last_weight);
  }
  const at::Tensor all = exchange(ranks, own, names);
  const auto* numbers = all.const_data_ptr<double>();
  for (size_t k = 0; k < slots.size(); ++k) {
    Slot& s = *slots[k];
    s.device_last = at::Tensor();
    double total = 0;
    double weight = 0;
    for (int64_t rank = 0; rank < all.size(0); ++rank) {
      const double* pair = numbers + (static_cast<size_t>(rank) * slots.size() + k) * 2;
      const bool mean = s.reduce == ReduceFx::mean;
      const double value = mean ? pair[0] * pair[1] : pair[0];
      total = rank == 0 ? value : reduced(s.reduce, total, value);
      weight += pair[1];
    }
    s.last = s.reduce == ReduceFx::mean ? total / weight : total;
  }
}

}  // namespace levin
