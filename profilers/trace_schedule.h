// The steps of a run that a trace records: after `skip_first`, cycles of `wait` steps without, `warmup` steps in which
// the tracer is set up, and `active` recorded ones. Meanings are those of torch.profiler.schedule.
#pragma once

#include <cstdint>

namespace levin {

struct TraceSchedule {
  int64_t skip_first = 0;
  int64_t wait = 1;
  int64_t warmup = 1;
  int64_t active = 3;
  int64_t repeat = 1;  // cycles; 0: to the end of the run

  enum class Phase { off, warmup, active };

  /// Of step `step`, counted from 0.
  [[nodiscard]] Phase phase(int64_t step) const;
  /// Whether `step` is the last recorded one of a cycle.
  [[nodiscard]] bool ends_cycle(int64_t step) const;

 private:
  /// Position in the cycle; -1 outside all cycles.
  [[nodiscard]] int64_t place(int64_t step) const;
};

}  // namespace levin
