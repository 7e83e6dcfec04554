#include "levin/profilers/time_split.h"

#include <cmath>

#if defined(__x86_64__)
#include <cpuid.h>

#include "levin/core/options/error.h"
#endif

namespace levin {

namespace {

constexpr double kBottleneckShare = 0.2;  // of the time
constexpr double kMinSeconds = 2.0;       // seconds
constexpr int64_t kMinSteps = 10;

// Returns true if the processor's counter runs at a constant rate, independent of clock frequency and sleep: CPUID
// 8000_0007h, EDX bit 8 (Intel SDM vol. 3, 18.17.1 "Invariant TSC").
bool has_steady_counter() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000007U, &a, &b, &c, &d) != 0 && (d & (1U << 8)) != 0;
#else
  return false;
#endif
}

int percent(double share) {
  return static_cast<int>(std::lround(100 * share));
}

}  // namespace

const char* step_part_name(StepPart part) {
  static constexpr std::array<const char*, kStepParts> names{
      "data", "transfer", "forward", "backward", "communication", "optimizer", "callbacks", "validation", "other"};
  return names[static_cast<size_t>(part)];
}

double StepTimes::training() const {
  double total = -(*this)[StepPart::validation];
  for (const double one : seconds) total += one;
  return total;
}

double StepTimes::share(StepPart part) const {
  const double total = training();
  return total > 0 ? (*this)[part] / total : 0;
}

std::string StepTimes::table() const {
  if (steps == 0) return "";
  std::string text = formatted("%ld training steps in %.3f s, %.1f us each\n%-13s  %12s  %12s  %6s", steps, training(),
                               1e6 * training() / static_cast<double>(steps), "part", "us a step", "total s", "share");
  for (size_t i = 0; i < kStepParts; ++i) {
    const auto part = static_cast<StepPart>(i);
    if (seconds[i] <= 0) continue;
    text += formatted("\n%-13s  %12.2f  %12.4f", step_part_name(part), 1e6 * seconds[i] / static_cast<double>(steps),
                      seconds[i]);
    if (part == StepPart::validation) continue;  // not a part of the steps
    text += formatted("  %4.1f %%", 100 * share(part));
  }
  return text;
}

TimeSplit::TimeSplit() : steady_counter_(has_steady_counter()) {
  reset();
}

void TimeSplit::reset() {
  ticks_ = {};
  steps_ = 0;
  slot_ = kOutside;
  first_ = read_clocks();
  last_ = first_.ticks;
}

void TimeSplit::resume() {
  last_ = ticks();
  slot_ = static_cast<size_t>(StepPart::other);
}

// The process may be preempted between the two: the closest of several tries counts.
TimeSplit::Reading TimeSplit::read_clocks() const {
  Reading closest;
  uint64_t least = UINT64_MAX;
  for (int attempt = 0; attempt < 4; ++attempt) {
    const uint64_t before = ticks();
    const auto time = Clock::now();
    const uint64_t between = ticks() - before;
    if (between >= least) continue;
    least = between;
    closest = {before + between / 2, time};
  }
  return closest;
}

StepTimes TimeSplit::times() const {
  StepTimes times;
  times.steps = steps_;
  const auto [now, time] = read_clocks();
  const double elapsed = std::chrono::duration<double>(time - first_.time).count();
  const auto counted = static_cast<double>(now - first_.ticks);
  if (counted <= 0) return times;
  for (size_t i = 0; i < kStepParts; ++i) {
    const uint64_t in_part = ticks_[i] + (slot_ == i ? now - last_ : 0);
    times.seconds[i] = static_cast<double>(static_cast<int64_t>(in_part)) * elapsed / counted;
  }
  return times;
}

bool data_is_bottleneck(const StepTimes& times) {
  return times.steps >= kMinSteps && times.training() >= kMinSeconds && times.share(StepPart::data) >= kBottleneckShare;
}

std::string data_wait_text(const StepTimes& times, std::optional<int64_t> num_workers, int64_t cores) {
  if (!data_is_bottleneck(times)) return "";
  const std::string start =
      "waiting for data " + std::to_string(percent(times.share(StepPart::data))) + " % of the time: ";
  if (!num_workers) return start + "the loader's next() is slower than training";
  const std::string now = std::to_string(*num_workers) + " now, " + count_of(cores, "core") + " here)";
  if (*num_workers < cores) return start + "raise num_workers (" + now;
  return start + "make samples cheaper to load, as num_workers fills the cores (" + now;
}

}  // namespace levin
