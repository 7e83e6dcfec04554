#include "levin/loggers/log_stream.h"

#include <chrono>
#include <stdexcept>
#include <typeinfo>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/options/registry.h"
#include "levin/core/process/console.h"
#include "levin/core/process/main_guard.h"
#include "levin/core/process/start_thread.h"
#include "levin/core/process/this_process.h"

namespace levin {

namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(50);
constexpr size_t kLongQueue = 4096;  // events; the thread is woken

size_t bytes_of(const MetricList& row) {
  return row.size() * (sizeof(MetricList::value_type) + 16);  // many names are longer than a string holds in itself
}

// Adds the name of the failed logger to errors of the call. Exceptions of other classes are passed on unchanged, and a
// warning names the logger.
template <class Call>
void naming(const Logger& logger, Call call) {
  const auto name = [&] { return detail::readable_type_name(typeid(logger)); };
  try {
    call();
  } catch (const std::exception& error) {
    const std::string text = error.what();
    if (text.find(name()) != std::string::npos) throw;
    if (typeid(error) == typeid(Error)) throw Error(name() + ": " + text);
    if (typeid(error) == typeid(std::runtime_error)) throw std::runtime_error(name() + ": " + text);
    detail::warn_of_failure(name().c_str(), std::current_exception());
    throw;
  } catch (...) {
    detail::warn_of_failure(name().c_str(), std::current_exception());
    throw;
  }
}

}  // namespace

LogStream::LogStream(std::vector<std::shared_ptr<Logger>> loggers, size_t capacity)
    : loggers_(std::move(loggers)), capacity_(capacity), thread_(start_thread("writes logs", [this] { work(); })) {}

LogStream::~LogStream() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_one();
  thread_.join();
  if (failure_ == nullptr) return;
  try {
    std::rethrow_exception(failure_);
  } catch (const std::exception& error) {
    Console::instance().error(error.what());
  } catch (...) {
    Console::instance().error("a logger threw an exception of an unknown type.");
  }
}

void LogStream::log_metrics(MetricRow row, int64_t step) {
  Event event{{step, seconds_since_1970()}, sizeof(Event) + row.values.size() * sizeof(double)};
  event.row = std::move(row);
  push(std::move(event), true);
}

void LogStream::log(LogKind kind, int64_t step, size_t bytes, Handing hand) {
  Event event{{step, seconds_since_1970()}, bytes};
  event.hand = [kind, hand = std::move(hand)](Logger& logger, const LogPoint& at) {
    if (logger.takes(kind)) hand(logger, at);
  };
  push(std::move(event), true);
}

void LogStream::log_system(MetricList measurements, int64_t step) {
  Event event{{step, seconds_since_1970()}, bytes_of(measurements)};
  event.hand = [measurements = std::move(measurements)](Logger& logger, const LogPoint& at) {
    if (logger.takes(LogKind::system)) {
      logger.log_system(measurements, at);
    } else if (logger.takes(LogKind::scalars)) {
      logger.log_metrics(measurements, at);
    }
  };
  push(std::move(event), true);
}

void LogStream::each(std::function<void(Logger&)> call) {
  Event event;
  event.hand = [call = std::move(call)](Logger& logger, const LogPoint&) { call(logger); };
  push(std::move(event), false);
}

void LogStream::then(std::function<void()> task) {
  Event event;
  event.task = std::move(task);
  push(std::move(event), false);
}

void LogStream::push(Event event, bool droppable) {
  bool is_long = false;
  {
    std::unique_lock lock(mutex_);
    rethrow(lock);
    if (droppable && queued_bytes_ + event.bytes > capacity_) {
      if (dropped_++ > 0) return;
      lock.unlock();
      Console::instance().warn(
          "the queue of the loggers is full: values are dropped until the loggers catch up. A "
          "disk or a file system may not answer; training continues.");
      return;
    }
    queued_bytes_ += event.bytes;
    queue_.push_back(std::move(event));
    is_long = queue_.size() == kLongQueue;
  }
  if (is_long) wake_.notify_one();
}

void LogStream::drain() {
  std::unique_lock lock(mutex_);
  if (!queue_.empty() || working_) {
    wanted_ = true;
    wake_.notify_one();
    idle_.wait(lock, [this] { return queue_.empty() && !working_; });
    wanted_ = false;
  }
  rethrow(lock);
}

bool LogStream::takes(LogKind kind) const {
  for (const auto& logger : loggers_) {
    if (logger->takes(kind)) return true;
  }
  return false;
}

int64_t LogStream::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

void LogStream::rethrow(std::unique_lock<std::mutex>& lock) {
  if (failure_ == nullptr) return;
  const std::exception_ptr failure = std::exchange(failure_, nullptr);
  lock.unlock();
  std::rethrow_exception(failure);
}

void LogStream::work() {
  std::vector<Event> events;
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait_for(lock, kLookEvery,
                   [this] { return ending_ || (wanted_ && !queue_.empty()) || queue_.size() >= kLongQueue; });
    events.swap(queue_);
    working_ = true;
    lock.unlock();
    size_t bytes = 0;
    for (const Event& event : events) {
      handle(event);
      bytes += event.bytes;
    }
    events.clear();
    lock.lock();
    queued_bytes_ -= bytes;
    working_ = false;
    if (!queue_.empty()) continue;
    idle_.notify_all();
    if (ending_) return;
  }
}

template <class Call>
bool LogStream::guarded(const Call& call) {
  try {
    call();
    return true;
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (failure_ == nullptr) failure_ = std::current_exception();
    return false;
  }
}

// A logger that throws loses this event; the others still get it.
void LogStream::handle(const Event& event) {
  if (event.task) return (void)guarded(event.task);
  if (!event.hand && !guarded([&] { make_list(event.row); })) return;
  for (const auto& logger : loggers_) {
    guarded([&] {
      naming(*logger, [&] {
        if (event.hand) return event.hand(*logger, event.at);
        if (logger->takes(LogKind::scalars)) logger->log_metrics(list_, event.at);
      });
    });
  }
}

void LogStream::make_list(const MetricRow& row) {
  const size_t count = row.values.size() + (row.epoch ? 1 : 0);
  if (row.names != names_ || list_.size() != count) {
    names_.reset();
    list_.clear();
    for (const std::string& name : *row.names) list_.emplace_back(name, 0);
    if (row.epoch) list_.emplace_back("epoch", 0);
    names_ = row.names;
  }
  for (size_t k = 0; k < row.values.size(); ++k) list_[k].second = row.values[k];
  if (row.epoch) list_.back().second = *row.epoch;
}

}  // namespace levin
