#include "levin/profilers/trace_schedule.h"

namespace levin {

int64_t TraceSchedule::place(int64_t step) const {
  const int64_t length = wait + warmup + active;
  const int64_t counted = step - skip_first;
  if (counted < 0 || (repeat > 0 && counted / length >= repeat)) return -1;
  return counted % length;
}

TraceSchedule::Phase TraceSchedule::phase(int64_t step) const {
  const int64_t at = place(step);
  if (at < wait) return Phase::off;
  return at < wait + warmup ? Phase::warmup : Phase::active;
}

bool TraceSchedule::ends_cycle(int64_t step) const {
  return place(step) == wait + warmup + active - 1;
}

}  // namespace levin
