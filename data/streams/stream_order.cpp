#include "levin/data/streams/stream_order.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/random.h"

namespace levin {

namespace {

constexpr size_t kOpenWindows =
    4;                             // permutations in memory: the batches of all workers lie in two, or three small ones
constexpr uint64_t kOfShards = 0;  // of random numbers; windows have 1, 2, …

// Returns a number below `end` with the same probability for each: by Lemire, "Fast Random Integer Generation in an
// Interval" (2019). std::uniform_int_distribution differs from library to library.
uint64_t below(std::mt19937_64& numbers, uint64_t end) {
  __extension__ using Wide = unsigned __int128;
  Wide product = static_cast<Wide>(numbers()) * end;
  if (static_cast<uint64_t>(product) < end) {
    const uint64_t threshold = (0 - end) % end;
    while (static_cast<uint64_t>(product) < threshold) product = static_cast<Wide>(numbers()) * end;
  }
  return static_cast<uint64_t>(product >> 64);
}

template <class T>
std::vector<T> permutation(size_t count, uint64_t seed) {
  std::vector<T> all(count);
  std::iota(all.begin(), all.end(), T{0});
  std::mt19937_64 numbers(seed);
  for (size_t k = count; k > 1; --k) std::swap(all[k - 1], all[below(numbers, k)]);
  return all;
}

}  // namespace

StreamOrder::StreamOrder(const StreamOrderOptions& options, Count count) : options_(options), count_(std::move(count)) {
  if (options_.window < 1) throw Error("StreamOrder: the window must be >= 1.");
  const uint64_t seed = mix_seed(mix_seed(options_.seed, static_cast<uint64_t>(options_.epoch)), kOfShards);
  if (options_.shuffle) {
    shards_ = permutation<size_t>(options_.shards, seed);
  } else {
    shards_.resize(options_.shards);
    std::iota(shards_.begin(), shards_.end(), size_t{0});
  }
  const auto largest = static_cast<size_t>(options_.shuffle ? options_.window : 1);
  for (size_t end = 0, size = 1; end < options_.shards; size = std::min(2 * size, largest)) {
    end = std::min(end + size, options_.shards);
    ends_.push_back(end);
  }
}

size_t StreamOrder::begin_of(size_t window) const {
  return window == 0 ? 0 : ends_[window - 1];
}

// The window that has the place, or nothing beyond the end. Counts the shards that come before.
std::optional<size_t> StreamOrder::window_of(int64_t place) const {
  while (firsts_.back() <= place && firsts_.size() <= ends_.size()) {
    const size_t window = firsts_.size() - 1;
    int64_t end = firsts_.back();
    for (size_t k = begin_of(window); k < ends_[window]; ++k) end += count_(shards_[k]);
    firsts_.push_back(end);
  }
  if (firsts_.back() <= place) return std::nullopt;
  return static_cast<size_t>(std::upper_bound(firsts_.begin(), firsts_.end(), place) - firsts_.begin()) - 1;
}

const StreamOrder::Window& StreamOrder::opened(size_t number) const {
  const auto found =
      std::find_if(windows_.begin(), windows_.end(), [&](const auto& each) { return each.first == number; });
  if (found != windows_.end()) {
    std::rotate(windows_.begin(), found, found + 1);
    return *windows_.front().second;
  }
  auto window = std::make_shared<Window>();
  window->first = firsts_[number];
  window->starts = {0};
  for (size_t k = begin_of(number); k < ends_[number]; ++k) {
    window->starts.push_back(window->starts.back() + count_(shards_[k]));
  }
  if (window->starts.back() > int64_t{UINT32_MAX}) {
    throw DataError("StreamLoader: the shards that are shuffled together hold " +
                    std::to_string(window->starts.back()) + " samples. Choose a smaller shuffle_shards.");
  }
  if (options_.shuffle) {
    const uint64_t seed = mix_seed(options_.seed, static_cast<uint64_t>(options_.epoch));
    window->permutation = permutation<uint32_t>(static_cast<size_t>(window->starts.back()), mix_seed(seed, number + 1));
  }
  windows_.insert(windows_.begin(), {number, std::move(window)});
  if (windows_.size() > kOpenWindows) windows_.pop_back();
  return *windows_.front().second;
}

std::vector<StreamPlace> StreamOrder::at(int64_t first, int64_t step, int64_t count) const {
  std::vector<StreamPlace> places;
  places.reserve(static_cast<size_t>(count));
  const std::lock_guard lock(mutex_);
  for (int64_t k = 0; k < count; ++k) {
    const int64_t place = first + k * step;
    const auto number = window_of(place);
    if (!number) break;
    const Window& window = opened(*number);
    int64_t sample = place - window.first;
    if (!window.permutation.empty()) sample = window.permutation[static_cast<size_t>(sample)];
    const auto shard = std::upper_bound(window.starts.begin(), window.starts.end(), sample) - window.starts.begin() - 1;
    places.push_back(
        {shards_[begin_of(*number) + static_cast<size_t>(shard)], sample - window.starts[static_cast<size_t>(shard)]});
  }
  return places;
}

int64_t StreamOrder::size() const {
  const std::lock_guard lock(mutex_);
  (void)window_of(INT64_MAX);
  return firsts_.back();
}

}  // namespace levin
