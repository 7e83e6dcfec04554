// Threads that fetch the batches of a pass ahead of their use, and deliver them in order.
// One thread calls start() and next(); the workers live from the first start() to the destructor. Within them autograd
// is off and LibTorch's operations use one thread each, so workers do not fight over the cores.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "levin/data/batch.h"

namespace levin {

/// A pool of threads that fetches the batches of one pass at a time.
class Prefetcher {
 public:
  /// Fetches one batch; may return early with anything once `abandoned` is true.
  using Fetch = std::function<Batch(int64_t batch_idx, const std::atomic<bool>& abandoned)>;

  /// At most num_workers * prefetch_factor batches are fetched ahead.
  Prefetcher(int64_t num_workers, int64_t prefetch_factor);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// Fetches batches first, first + 1, … end - 1 with `fetch`. A pass in progress is abandoned without waiting for it.
  /// Throws DataError if a thread cannot be started.
  void start(Fetch fetch, int64_t first, int64_t end);

  /// Abandons a pass in progress and ends the threads; start() begins a new pass.
  void stop();

  /// Blocks until the next batch is ready; false: the pass is over. Rethrows the exception of its fetch and abandons
  /// the pass.
  bool next(Batch& batch);

 private:
  struct Pass;
  void start_threads();
  void work(int64_t worker);
  void work_on(std::shared_ptr<Pass> pass, std::unique_lock<std::mutex>& lock);
  void abandon_pass();

  int64_t num_workers_;
  int64_t capacity_;  // batches fetched ahead
  std::mutex mutex_;  // guards pass_, its members and stopping_
  std::condition_variable work_there_;
  std::condition_variable batch_there_;
  std::shared_ptr<Pass> pass_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace levin
