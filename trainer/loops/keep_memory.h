// Keeps the memory that a step frees for the next one, where fetching it again costs time: glibc returns tensors above
// 32 MiB to the system when they are freed, and each page of the next step's is a page fault.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "levin/core/process/process_memory.h"
#include "levin/trainer/run/run.h"

namespace levin {

/// What the first steps of a fit fetched from the system, and whether to keep it. Reads no clock, so tests can decide.
struct FetchedMemory {
  int64_t faults = 0;  // of one step
  double seconds = 0;  // of one step

  /// A page costs about half a microsecond, so that the faults take a twentieth of the step, and come to 32 MiB at
  /// least. `available`: bytes that the process could still allocate; a step that fetches half of them keeps nothing.
  [[nodiscard]] bool is_worth_keeping(int64_t available) const;
};

/// While it lives, memory may be kept. The first steps decide; until they have, `decided` is false.
class MemoryKeeping {
 public:
  /// Null where there is nothing to decide: on a GPU, where a strategy or the environment has decided, with
  /// LEVIN_KEEP_FREED_MEMORY=0, and elsewhere than on glibc.
  [[nodiscard]] static std::unique_ptr<MemoryKeeping> of(Run& run);

  /// Around what a training batch takes.
  void begin_batch();
  /// Whether memory is kept from now on, and was not before.
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
