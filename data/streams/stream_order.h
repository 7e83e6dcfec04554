// The order in which a pass visits the samples of a data set in shards: a function of seed and epoch alone.
//
// Note [Order of a stream]
// The shards are permuted. The samples of `window` shards that follow each other in this permutation are shuffled
// together, so a pass needs few shards at a time. The first windows hold 1, 2, 4, … shards: a pass begins when the
// first shard is there. Ranks and workers take their samples out of this order, which does not depend on them: rank r
// of n takes the places r, r + n, r + 2 n, … A place is found without reading what comes before it, as only the numbers
// of samples of the shards before it must be known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace levin {

/// A sample of a data set in shards.
struct StreamPlace {
  size_t shard = 0;
  int64_t index = 0;  // in the shard
  friend bool operator==(const StreamPlace&, const StreamPlace&) = default;
};

/// What an order depends on.
struct StreamOrderOptions {
  size_t shards = 0;
  uint64_t seed = 0;
  int64_t epoch = 0;
  bool shuffle = false;  // else shard after shard
  int64_t window = 8;    // shards whose samples are shuffled together
};

/// The order of one pass. Thread-safe.
class StreamOrder {
 public:
  /// Returns the number of samples of a shard, and may have to fetch it.
  using Count = std::function<int64_t(size_t shard)>;

  /// Throws Error if the window is < 1.
  StreamOrder(const StreamOrderOptions& options, Count count);

  /// Returns the samples at the places first, first + step, …: `count` of them, or fewer at the end of the order.
  [[nodiscard]] std::vector<StreamPlace> at(int64_t first, int64_t step, int64_t count) const;

  /// Returns the number of samples, for which every shard must be counted.
  [[nodiscard]] int64_t size() const;

  /// Returns the shards in the order in which a pass visits them.
  [[nodiscard]] const std::vector<size_t>& shards() const { return shards_; }

 private:
  struct Window {
    int64_t first = 0;                       // index of its first sample in the order
    std::vector<uint32_t> permutation = {};  // of its samples; none: in order
    std::vector<int64_t> starts = {};        // of each of its shards, from the window's first sample on, and their end
  };
  [[nodiscard]] size_t begin_of(size_t window) const;
  [[nodiscard]] std::optional<size_t> window_of(int64_t place) const;
  [[nodiscard]] const Window& opened(size_t window) const;

  StreamOrderOptions options_;
  Count count_;
  std::vector<size_t> shards_ = {};  // permuted
  std::vector<size_t> ends_ = {};    // of each window, in shards_

  mutable std::mutex mutex_;                   // guards what follows
  mutable std::vector<int64_t> firsts_ = {0};  // of each window that is known, and of the next one
  mutable std::vector<std::pair<size_t, std::shared_ptr<const Window>>> windows_ = {};  // used last, the newest first
};

}  // namespace levin
