// Runs one task per slot in parallel: the first on the calling thread, each of the others on its own thread. LibTorch's
// thread-local state (grad mode, autocast, inference mode, saved-tensor hooks, profiler) is passed on to the threads.
//
//   ParallelApply apply(slots);
//   apply([&](size_t k) { outputs[k] = replicas[k]->forward(inputs[k]); });
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "levin/strategies/device_placement.h"

namespace levin {

class WorkerThread;

/// A thread for each slot but the first. Not thread-safe: one thread makes the calls. Throws ConfigError if there are
/// no slots.
class ParallelApply {
 public:
  /// `slots`: at least one. Threads are started by the first call.
  explicit ParallelApply(std::vector<DeviceSlot> slots);
  ~ParallelApply();
  ParallelApply(const ParallelApply&) = delete;
  ParallelApply& operator=(const ParallelApply&) = delete;

  [[nodiscard]] const std::vector<DeviceSlot>& slots() const { return slots_; }

  /// Runs task(k) for the first `count` slots, each under its SlotScope, and waits for all. On CPU slots each task has
  /// its own random numbers (RandomScope), so that results do not depend on thread timing, and operators use the slot's
  /// share of the caller's threads. If tasks throw, throws Error, or ConfigError after a ConfigError, with the
  /// slot and message of the first by slot; Interrupted is rethrown unchanged.
  void operator()(size_t count, const std::function<void(size_t)>& task);
  void operator()(const std::function<void(size_t)>& task) { (*this)(slots_.size(), task); }

  /// Continues the last call: runs tasks in the same way, but draws nothing from the process's random numbers.
  void resume(size_t count, const std::function<void(size_t)>& task);

 private:
  void run(size_t count, uint64_t seed, const std::function<void(size_t)>& task);
  void rethrow(const std::vector<std::exception_ptr>& errors) const;

  std::vector<DeviceSlot> slots_;
  std::vector<std::unique_ptr<WorkerThread>> workers_;  // of slots 1, 2, …
  uint64_t seed_ = 0;                                   // of the last call
};

}  // namespace levin
