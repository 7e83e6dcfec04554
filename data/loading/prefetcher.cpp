#include "levin/data/loading/prefetcher.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <pthread.h>

#include <exception>
#include <string>
#include <system_error>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/process/log.h"
#include "levin/core/process/threads.h"

namespace levin {

namespace {

struct Slot {
  bool ready = false;
  Batch batch = {};
  std::exception_ptr failure = nullptr;
};

void use_one_thread_per_operation() {
  (void)at::get_num_threads();
  set_openmp_threads(1);
}

}  // namespace

// Workers keep their pass alive, so nobody waits for an abandoned one.
struct Prefetcher::Pass {
  Fetch fetch;
  int64_t next_to_fetch;
  int64_t next_to_deliver;
  int64_t end;
  std::vector<Slot> slots;  // batch b waits in slot b % slots.size()
  std::atomic<bool> abandoned = false;

  [[nodiscard]] bool has_work() const {
    return next_to_fetch < end && next_to_fetch < next_to_deliver + static_cast<int64_t>(slots.size());
  }
  Slot& slot(int64_t batch_idx) { return slots[static_cast<size_t>(batch_idx) % slots.size()]; }
};

Prefetcher::Prefetcher(int64_t num_workers, int64_t prefetch_factor)
    : num_workers_(num_workers), capacity_(num_workers * prefetch_factor) {}

Prefetcher::~Prefetcher() {
  stop();
}

void Prefetcher::start(Fetch fetch, int64_t first, int64_t end) {
  auto pass = std::make_shared<Pass>();
  pass->fetch = std::move(fetch);
  pass->next_to_fetch = pass->next_to_deliver = first;
  pass->end = end;
  pass->slots.resize(static_cast<size_t>(capacity_));
  start_threads();
  {
    const std::lock_guard lock(mutex_);
    abandon_pass();
    pass_ = std::move(pass);
  }
  work_there_.notify_all();
}

bool Prefetcher::next(Batch& batch) {
  std::unique_lock lock(mutex_);
  if (pass_ == nullptr || pass_->next_to_deliver >= pass_->end) return false;
  Slot& slot = pass_->slot(pass_->next_to_deliver);
  batch_there_.wait(lock, [&] { return slot.ready; });
  if (slot.failure != nullptr) {
    const std::exception_ptr failure = std::move(slot.failure);  // no worker frees data that the caller still reads
    abandon_pass();
    std::rethrow_exception(failure);
  }
  batch = std::move(slot.batch);
  slot = Slot{};
  ++pass_->next_to_deliver;
  lock.unlock();
  work_there_.notify_one();
  return true;
}

void Prefetcher::abandon_pass() {
  if (pass_ != nullptr) pass_->abandoned = true;
  pass_.reset();
}

// Not in the constructor: a process forked after it would have no threads.
void Prefetcher::start_threads() {
  if (!threads_.empty()) return;
  try {
    for (int64_t i = 0; i < num_workers_; ++i) threads_.emplace_back([this, i] { work(i); });
    log::data.debug("started {} threads that fetch up to {} batches ahead", num_workers_, capacity_);
  } catch (const std::system_error& error) {
    const size_t started = threads_.size();
    stop();
    throw DataError("DataLoader: cannot start worker thread " + std::to_string(started + 1) + " of " +
                    std::to_string(num_workers_) + ": " + error.what() + ". Set a smaller num_workers.");
  }
}

void Prefetcher::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    abandon_pass();
  }
  work_there_.notify_all();
  for (auto& thread : threads_) thread.join();
  threads_.clear();
  stopping_ = false;
}

void Prefetcher::work(int64_t worker) {
  pthread_setname_np(pthread_self(), ("levin-data-" + std::to_string(worker)).c_str());
  use_one_thread_per_operation();
  const at::NoGradGuard no_grad;
  std::unique_lock lock(mutex_);
  while (true) {
    work_there_.wait(lock, [&] { return stopping_ || (pass_ != nullptr && pass_->has_work()); });
    if (stopping_) return;
    work_on(pass_, lock);
  }
}

// `pass` is a copy of the pointer: the caller's own may be reset meanwhile.
void Prefetcher::work_on(std::shared_ptr<Pass> pass, std::unique_lock<std::mutex>& lock) {
  const int64_t batch_idx = pass->next_to_fetch++;
  lock.unlock();
  Slot done;
  try {
    done.batch = pass->fetch(batch_idx, pass->abandoned);
  } catch (...) {
    done.failure = std::current_exception();
  }
  done.ready = true;
  lock.lock();
  if (pass->abandoned) {  // nothing waits for it; it is freed without blocking the others
    lock.unlock();
    done = Slot{};
    pass.reset();
    lock.lock();
    return;
  }
  pass->slot(batch_idx) = std::move(done);
  batch_there_.notify_one();
}

}  // namespace levin
