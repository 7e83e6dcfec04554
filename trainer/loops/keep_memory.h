// Keeps the memory that a step frees for the next step if fetching it again costs time: glibc returns tensors above 32
// MiB to the system when they are freed, and any others at the end of the heap, and each page of the next step's
// tensors is a page fault.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "levin/core/process/process_memory.h"
#include "levin/trainer/run/run.h"

namespace levin {

/// The memory that the first steps of a fit fetched from the system. It reads no clock, so tests can set the times.
struct FetchedMemory {
  int64_t faults = 0;  // of one step
  double seconds = 0;  // of one step

  /// Returns whether keeping it saves time: the faults, at about half a microsecond for each page, take a twentieth of
  /// the step, and amount to at least 256 KiB. `available`: bytes that the process could still allocate; a step that
  /// fetches half of them keeps nothing.
  [[nodiscard]] bool is_worth_keeping(int64_t available) const;
};

/// A scope in which memory may be kept. The first steps decide; until then `decided` returns false.
class MemoryKeeping {
 public:
  /// Returns null if there is nothing to decide: on a GPU, if a strategy or the environment has decided, with
  /// LEVIN_KEEP_FREED_MEMORY=0, and without glibc.
  [[nodiscard]] static std::unique_ptr<MemoryKeeping> of(Run& run);

  /// Begins the measurement of a training batch.
  void begin_batch();
  /// Ends it. Returns whether memory is kept from now on, and was not before.
  bool end_batch();
  [[nodiscard]] bool decided() const { return batches_ >= kLast; }

 private:
  static constexpr int kFirst = 3, kLast = 8;  // batches before the first that counts, and before the decision

  explicit MemoryKeeping(Run& run) : run_(run) {}
  bool decide();
  void give_up();

  Run& run_;
  int batches_ = 0;
  int64_t faults_before_ = 0;
  int64_t faults_ = 0;
  std::chrono::steady_clock::time_point began_ = {};
  std::chrono::duration<double> time_ = {};
  int64_t most_resident_ = 0;  // bytes; more than that, and memory is returned again
  std::optional<FreedMemoryScope> kept_;
};

}  // namespace levin
