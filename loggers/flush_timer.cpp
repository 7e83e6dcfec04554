#include "levin/loggers/flush_timer.h"

#include "levin/core/process/start_thread.h"

namespace levin {

void FlushTimer::arm(Seconds delay) {
  const auto when =
      std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(delay);
  const std::lock_guard lock(mutex_);
  if (stopping_ || (due_ && *due_ <= when)) return;
  due_ = when;
  if (!thread_.joinable()) thread_ = start_thread("writes logs", [this] { run(); });
  changed_.notify_all();
}

void FlushTimer::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(mutex_);
  stopping_ = false;
  due_.reset();
}

void FlushTimer::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (!due_) {
      changed_.wait(lock);
    } else if (std::chrono::steady_clock::now() < *due_) {
      const auto until = *due_;
      changed_.wait_until(lock, until);
    } else {
      due_.reset();
      lock.unlock();
      body_();
      lock.lock();
    }
  }
}

}  // namespace levin
