#include "levin/c/worker.h"

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/process/start_thread.h"

namespace levin::c {

namespace {

// A scope in which the calling thread, and threads that it starts, leave signals to the program's own threads.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_ = {};
};

}  // namespace

Worker::Worker() : process_(getpid()) {
  const BlockedSignals blocked;
  thread_ = start_thread("runs the calls of levin.h", [this] { loop(); });
}

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Worker::check_caller() const {
  if (getpid() != process_) {
    throw Error(
        "the run belongs to the process that has created it, and this is a child of that process. Create "
        "another run here.");
  }
  if (std::this_thread::get_id() == thread_.get_id()) {
    throw Error("the call comes from code of the same run, such as its model, which runs already. Call it after that.");
  }
}

void Worker::run(const std::function<void()>& action) {
  check_caller();
  const std::lock_guard turn(turn_);
  std::unique_lock lock(mutex_);
  action_ = &action;
  changed_.notify_all();
  changed_.wait(lock, [this] { return action_ == nullptr; });
  if (const std::exception_ptr error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
}

void Worker::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return action_ != nullptr || ends_; });
    if (action_ == nullptr) return;
    const auto& action = *action_;
    lock.unlock();
    std::exception_ptr error;
    try {
      action();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    error_ = std::move(error);
    action_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace levin::c
