#include "levin/data/loading/stratified.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/random.h"
#include "levin/data/loading/sampler.h"

namespace levin {

namespace {

// So that batches are not drawn as a sampler of the same seed draws.
constexpr uint64_t kStratifiedStream = 0x73747261;

void permute(std::vector<int64_t>& items, at::Generator& generator) {
  const at::Tensor places = at::randperm(static_cast<int64_t>(items.size()), generator, at::kLong);
  const int64_t* place = places.const_data_ptr<int64_t>();
  std::vector<int64_t> permuted(items.size());
  for (size_t i = 0; i < items.size(); ++i) permuted[i] = items[static_cast<size_t>(place[i])];
  items = std::move(permuted);
}

IndexBatches group_by_class(const at::Tensor& labels, const at::Tensor& rows) {
  const at::Tensor own = labels.contiguous();
  const int64_t* label = own.const_data_ptr<int64_t>();
  const at::Tensor wanted = rows.defined() ? rows.contiguous() : at::arange(own.numel(), at::kLong);
  const int64_t* row = wanted.const_data_ptr<int64_t>();
  IndexBatches of_class(static_cast<size_t>(own.max().item<int64_t>()) + 1);
  for (int64_t i = 0; i < wanted.numel(); ++i) of_class[static_cast<size_t>(label[row[i]])].push_back(row[i]);
  return of_class;
}

std::vector<int64_t> sizes_of(const IndexBatches& of_class) {
  std::vector<int64_t> sizes;
  for (const auto& members : of_class) sizes.push_back(static_cast<int64_t>(members.size()));
  return sizes;
}

}  // namespace

void check_labels(const at::Tensor& labels) {
  const bool good = labels.defined() && labels.dim() == 1 && labels.numel() > 0 && labels.scalar_type() == at::kLong;
  if (good && labels.min().item<int64_t>() >= 0) return;
  throw DataError(
      "labels: balanced weights and stratified batches or splits need the class of each sample, a tensor (n) of int64 "
      "from 0 on. Does the data set have classes?");
}

std::vector<int64_t> largest_remainders(const std::vector<int64_t>& counts, int64_t total) {
  const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  std::vector<int64_t> shares(counts.size(), 0), remainders(counts.size(), 0);
  if (all == 0) return shares;
  int64_t left = total;
  for (size_t i = 0; i < counts.size(); ++i) {
    shares[i] = counts[i] * total / all;
    remainders[i] = counts[i] * total % all;
    left -= shares[i];
  }
  std::vector<size_t> order(counts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return remainders[a] > remainders[b]; });
  for (size_t i = 0; i < static_cast<size_t>(left); ++i) ++shares[order[i]];
  return shares;
}

StratifiedBatchSampler::StratifiedBatchSampler(const at::Tensor& labels, StratifiedBatchSamplerOptions options,
                                               const at::Tensor& rows)
    : options_(checked(options, "StratifiedBatchSamplerOptions")) {
  check_labels(labels);
  of_class_ = group_by_class(labels, rows);
  samples_ = rows.defined() ? rows.numel() : labels.numel();
}

std::optional<int64_t> StratifiedBatchSampler::num_batches() const {
  return options_.drop_last ? samples_ / options_.batch_size
                            : (samples_ + options_.batch_size - 1) / options_.batch_size;
}

IndexBatches StratifiedBatchSampler::batches(uint64_t seed, int64_t epoch) const {
  at::Generator generator =
      at::detail::createCPUGenerator(mix_seed(mix_seed(seed, static_cast<uint64_t>(epoch)), kStratifiedStream));
  IndexBatches left = of_class_;
  if (options_.shuffle) {
    for (auto& members : left) permute(members, generator);
  }
  IndexBatches all;
  for (int64_t b = 0; b < *num_batches(); ++b) {
    const std::vector<int64_t> sizes = sizes_of(left);
    const int64_t rest = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    const std::vector<int64_t> shares = largest_remainders(sizes, std::min(options_.batch_size, rest));
    std::vector<int64_t>& batch = all.emplace_back();
    for (size_t c = 0; c < left.size(); ++c) {
      batch.insert(batch.end(), left[c].end() - shares[c], left[c].end());
      left[c].resize(left[c].size() - static_cast<size_t>(shares[c]));
    }
    if (options_.shuffle) permute(batch, generator);
  }
  if (!options_.shuffle) return all;
  std::vector<int64_t> places(all.size());
  std::iota(places.begin(), places.end(), int64_t{0});
  permute(places, generator);
  IndexBatches shuffled;
  for (const int64_t place : places) shuffled.push_back(std::move(all[static_cast<size_t>(place)]));
  return shuffled;
}

namespace {

Split split_in_random_order(int64_t size, int64_t count, uint64_t seed, const at::Tensor& labels) {
  const at::Tensor order = RandomSampler(size).order(seed, 0);
  if (!labels.defined()) return {order.narrow(0, 0, size - count), order.narrow(0, size - count, count)};
  check_labels(labels);
  std::vector<int64_t> wanted = largest_remainders(sizes_of(group_by_class(labels, order)), count);
  const at::Tensor own = labels.contiguous();
  const int64_t* label = own.const_data_ptr<int64_t>();
  const int64_t* row = order.const_data_ptr<int64_t>();
  std::vector<int64_t> train, held_out;
  for (int64_t i = 0; i < size; ++i) {
    int64_t& missing = wanted[static_cast<size_t>(label[row[i]])];
    if (missing > 0)
      --missing, held_out.push_back(row[i]);
    else
      train.push_back(row[i]);
  }
  return {at::tensor(train, at::kLong), at::tensor(held_out, at::kLong)};
}

}  // namespace

Split random_split(int64_t size, int64_t count, uint64_t seed, const at::Tensor& labels, bool in_order) {
  Split split = split_in_random_order(size, count, seed, labels);
  if (in_order) split = {std::get<0>(split.train.sort()), std::get<0>(split.held_out.sort())};
  return split;
}

}  // namespace levin
