// The calls in which parts of a user's program throw.
//
//   FaultPoints::instance().arm("Callback::on_train_start", /*call=*/1, Thrown::levin_error);
#pragma once

#include <c10/util/Exception.h>

#include <map>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>

#include "levin/core/options/error.h"
#include "levin/core/state.h"

namespace levin::test {

/// What user code throws.
enum class Thrown { runtime_error, levin_error, config_error, libtorch_error, own_exception, bad_alloc, number };

/// An exception class of the user's own.
struct OwnException : std::exception {
  [[nodiscard]] const char* what() const noexcept override { return "the planted fault"; }
};

[[noreturn]] inline void throw_fault(Thrown what) {
  switch (what) {
    case Thrown::levin_error: throw Error("the planted fault");
    case Thrown::config_error: throw ConfigError("the planted fault");
    case Thrown::libtorch_error: TORCH_CHECK(false, "the planted fault");
    case Thrown::own_exception: throw OwnException();
    case Thrown::bad_alloc: throw std::bad_alloc();
    case Thrown::number: throw 42;
    case Thrown::runtime_error: break;
  }
  throw std::runtime_error("the planted fault");
}

/// Counts the calls of the faulty parts' functions, and throws in the call that a test has chosen. Thread-safe.
class FaultPoints {
 public:
  static FaultPoints& instance() {
    static FaultPoints points;
    return points;
  }

  /// Forgets the counted calls and disarms.
  void clear() {
    const std::lock_guard lock(mutex_);
    calls_.clear();
    armed_.clear();
    thrown_ = 0;
  }
  /// Throws in the `call`-th call (from 1) of `point` from here on.
  void arm(const std::string& point, int64_t call, Thrown what) {
    const std::lock_guard lock(mutex_);
    armed_[point] = {calls_[point] + call, what};
  }
  /// Lets every function succeed from here on.
  void disarm() {
    const std::lock_guard lock(mutex_);
    armed_.clear();
  }
  void reach(const std::string& point) {
    Thrown what = Thrown::runtime_error;
    {
      const std::lock_guard lock(mutex_);
      const int64_t call = ++calls_[point];
      const auto found = armed_.find(point);
      if (found == armed_.end() || found->second.call != call) return;
      what = found->second.what;
      ++thrown_;
    }
    throw_fault(what);
  }
  [[nodiscard]] std::map<std::string, int64_t> calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  [[nodiscard]] int64_t calls_of(const std::string& point) const {
    const std::lock_guard lock(mutex_);
    const auto found = calls_.find(point);
    return found == calls_.end() ? 0 : found->second;
  }
  /// Returns how many of the armed calls have thrown.
  [[nodiscard]] int64_t thrown() const {
    const std::lock_guard lock(mutex_);
    return thrown_;
  }

 private:
  struct Armed {
    int64_t call;
    Thrown what;
  };
  mutable std::mutex mutex_;
  std::map<std::string, int64_t> calls_;
  std::map<std::string, Armed> armed_;
  int64_t thrown_ = 0;
};

inline void reach(const std::string& point) {
  FaultPoints::instance().reach(point);
}

inline State counted_state(int64_t count) {
  State state;
  state.set<int64_t>("count", count);
  return state;
}

// clang-format off
#define LEVIN_POINT(kind, name, parameters) \
  void name parameters override { reach(#kind "::" #name); }
// clang-format on

}  // namespace levin::test
