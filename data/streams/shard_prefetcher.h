// Threads that copy the shards of a pass to the cache ahead of their use.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "levin/data/streams/stream_source.h"

namespace levin {

/// Copies the shards of a list in order, those up to a horizon that the pass moves. Errors are left to the pass, which
/// meets them when it needs the shard. abandon() and the destructor end copies in progress.
class ShardPrefetcher {
 public:
  ShardPrefetcher(std::shared_ptr<StreamSource> source, std::vector<size_t> shards, int64_t threads);
  ~ShardPrefetcher();
  ShardPrefetcher(const ShardPrefetcher&) = delete;
  ShardPrefetcher& operator=(const ShardPrefetcher&) = delete;

  /// Permits the first `count` shards of the list; a smaller number than before changes nothing.
  void permit(size_t count);
  /// Begins no further copy, and ends those in progress without waiting for them.
  void abandon();

 private:
  void work();

  std::shared_ptr<StreamSource> source_;
  std::vector<size_t> shards_;
  std::mutex mutex_;  // guards next_ and stopping_
  std::condition_variable there_is_work_;
  size_t next_ = 0;
  std::atomic<size_t> permitted_ = 0;  // written with the mutex
  bool stopping_ = false;
  std::atomic<bool> abandoned_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace levin
