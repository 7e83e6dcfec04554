// A thread that runs one job at a time and is reused for the next one: on a new thread LibTorch would start its workers
// again, and malloc would get memory from the system again.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "levin/core/process/start_thread.h"

namespace levin {

class WorkerThread {
 public:
  WorkerThread() : thread_(start_thread("computes on a device", [this] { loop(); })) {}
  /// Requires: the last job was waited for.
  ~WorkerThread() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  WorkerThread(const WorkerThread&) = delete;
  WorkerThread& operator=(const WorkerThread&) = delete;

  /// `job` must not throw. Requires: the last job was waited for.
  void start(std::function<void()> job) {
    {
      const std::lock_guard lock(mutex_);
      job_ = std::move(job);
    }
    changed_.notify_all();
  }

  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return job_ == nullptr; });
  }

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return ends_ || job_ != nullptr; });
      if (job_ == nullptr) return;
      lock.unlock();
      job_();
      lock.lock();
      job_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> job_;
  bool ends_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace levin
