// One task for each slot, side by side: a thread for every slot but the first, which is the caller's. What belongs to
// the calling thread in LibTorch (grad mode, autocast, inference mode, hooks of saved tensors, a profiler) is carried
// over.
//
//   ParallelApply apply(slots);
//   apply([&](size_t k) { outputs[k] = replicas[k]->forward(inputs[k]); });
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "levin/strategies/device_slot.h"

namespace levin {

class WorkerThread;

class ParallelApply {
 public:
  /// `slots`: at least one. Threads are started with the first call.
  explicit ParallelApply(std::vector<DeviceSlot> slots);
  ~ParallelApply();
  ParallelApply(const ParallelApply&) = delete;
  ParallelApply& operator=(const ParallelApply&) = delete;

  [[nodiscard]] const std::vector<DeviceSlot>& slots() const { return slots_; }

  /// Runs task(k) for the first `count` slots, each under its SlotScope, and waits for all. On CPU slots each draws
  /// random numbers of its own (RandomScope), so that a run is the same whichever thread is faster, and operators use
  /// the slot's share of the caller's threads. Throws Error with the place and text of the first task, by slot, that
  /// threw; Interrupted passes as it is.
  void operator()(size_t count, const std::function<void(size_t)>& task);
  void operator()(const std::function<void(size_t)>& task) { (*this)(slots_.size(), task); }

  /// The same as a later part of the last call: it takes nothing from the process's random numbers.
  void go_on(size_t count, const std::function<void(size_t)>& task);

 private:
  void run(size_t count, uint64_t seed, const std::function<void(size_t)>& task);
  void rethrow(const std::vector<std::exception_ptr>& errors) const;

  std::vector<DeviceSlot> slots_;
  std::vector<std::unique_ptr<WorkerThread>> workers_;  // of slots 1, 2, …
  uint64_t seed_ = 0;                                   // of the last call
};

}  // namespace levin
