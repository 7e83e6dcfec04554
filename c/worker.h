// The thread of a run. Fabric is used on one thread: number of threads, gradient mode and autocast are settings of the
// calling thread, and a program may call from any.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace levin::c {

/// A thread that runs actions of other threads, one after another. Thread-safe.
class Worker {
 public:
  Worker();
  /// Ends the thread. Called where check_caller() does not throw.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Throws Error on the thread itself, which would wait for itself, and in a child process, where the thread does not
  /// exist.
  void check_caller() const;
  /// Runs `action` on the thread, waits for it, and throws what it throws. Throws as check_caller().
  void run(const std::function<void()>& action);

 private:
  void loop();

  const pid_t process_;
  std::mutex turn_ = {};  // of the caller whose action is run
  std::mutex mutex_ = {};
  std::condition_variable changed_ = {};
  const std::function<void()>* action_ = nullptr;  // null: there is nothing to do
  std::exception_ptr error_ = nullptr;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace levin::c
