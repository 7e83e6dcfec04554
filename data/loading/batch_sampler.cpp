#include "levin/data/loading/batch_sampler.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace levin {

namespace {

// Cuts the largest batch in two; false if none has two samples.
bool split_largest(IndexBatches& batches) {
  const auto largest = std::max_element(batches.begin(), batches.end(),
                                        [](const auto& a, const auto& b) { return a.size() < b.size(); });
  if (largest->size() < 2) return false;
  const auto middle = largest->begin() + static_cast<int64_t>(largest->size() + 1) / 2;
  std::vector<int64_t> second(middle, largest->end());
  largest->erase(middle, largest->end());
  batches.push_back(std::move(second));
  return true;
}

}  // namespace

int64_t count_share_of_batches(int64_t batches, int64_t rank, int64_t world_size, bool padded) {
  return padded ? (batches + world_size - 1) / world_size : (batches - rank + world_size - 1) / world_size;
}

IndexBatches share_of_batches(IndexBatches batches, int64_t rank, int64_t world_size, bool padded, bool may_split) {
  if (world_size == 1 || batches.empty()) return batches;
  const auto ranks = static_cast<size_t>(world_size);
  while (padded && may_split && batches.size() % ranks != 0 && split_largest(batches)) {
  }
  for (size_t i = 0; padded && batches.size() % ranks != 0; ++i) batches.push_back(batches[i]);
  IndexBatches share;
  for (size_t b = static_cast<size_t>(rank); b < batches.size(); b += ranks) share.push_back(std::move(batches[b]));
  return share;
}

}  // namespace levin
