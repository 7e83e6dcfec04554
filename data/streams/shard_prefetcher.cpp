#include "levin/data/streams/shard_prefetcher.h"

#include <pthread.h>

#include <algorithm>
#include <exception>
#include <system_error>
#include <utility>

#include "levin/core/process/log.h"
#include "levin/core/process/main_guard.h"

namespace levin {

ShardPrefetcher::ShardPrefetcher(std::shared_ptr<StreamSource> source, std::vector<size_t> shards, int64_t threads)
    : source_(std::move(source)), shards_(std::move(shards)) {
  try {
    for (int64_t k = 0; k < threads; ++k) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error& error) {  // the pass itself fetches what it needs
    log::data.warn("cannot start a thread that fetches shards ahead: {}", error.what());
  }
}

ShardPrefetcher::~ShardPrefetcher() {
  abandon();
  for (std::thread& thread : threads_) thread.join();
}

void ShardPrefetcher::abandon() {
  abandoned_ = true;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  there_is_work_.notify_all();
}

void ShardPrefetcher::permit(size_t count) {
  if (count <= permitted_.load(std::memory_order_relaxed)) return;
  {
    const std::lock_guard lock(mutex_);
    permitted_ = std::max(permitted_.load(), std::min(count, shards_.size()));
  }
  there_is_work_.notify_all();
}

void ShardPrefetcher::work() {
  ::pthread_setname_np(::pthread_self(), "levin-shards");
  std::unique_lock lock(mutex_);
  while (true) {
    there_is_work_.wait(lock, [this] { return stopping_ || next_ < permitted_; });
    if (stopping_) return;
    const size_t shard = shards_[next_++];
    lock.unlock();
    try {
      (void)source_->bring(shard, &abandoned_);
    } catch (...) {
      log::data.debug("shard {} is not fetched ahead: {}", shard, exception_text(std::current_exception()));
    }
    lock.lock();
  }
}

}  // namespace levin
