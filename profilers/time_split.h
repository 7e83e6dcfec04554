// Where the time of training steps goes. Always measured: entering a part reads one counter and adds once.
//
//   const levin::StepTimes times = trainer.time_split().times();
//   times.share(levin::StepPart::data);   // 0.43: training waits for data 43 % of the time
//
// The parts exclude each other and sum to the time that training steps took. On a GPU the host's time is measured: a
// kernel's time counts in the part in which the host waits for it. Training thread only.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace levin {

/// What a training step is made of, in the order of the step.
enum class StepPart : uint8_t {
  data,      // waiting for the loader's next batch
  transfer,  // bringing it to the device
  forward,   // training_step; with manual optimization without the parts below
  backward,
  communication,  // synchronization with other ranks; none with one rank. Gradients are reduced within `backward`
  optimizer,      // zeroing and clipping gradients, the update, schedulers
  callbacks,      // the hooks of callbacks and module
  validation,     // validation between two steps
  other,          // metrics, loggers, checkpoints, the loop itself
};
inline constexpr size_t kStepParts = 9;

[[nodiscard]] const char* step_part_name(StepPart part);

/// The seconds spent in each part, and the number of steps measured.
struct StepTimes {
  std::array<double, kStepParts> seconds = {};  // by StepPart
  int64_t steps = 0;                            // training batches

  [[nodiscard]] double operator[](StepPart part) const { return seconds[static_cast<size_t>(part)]; }
  /// Returns the seconds in all parts but validation.
  [[nodiscard]] double training() const;
  /// Returns the fraction of training() spent in `part`, 0 to 1; 0 before anything was measured.
  [[nodiscard]] double share(StepPart part) const;
  /// Returns a table for people; "" before the first step.
  [[nodiscard]] std::string table() const;
};

/// A stopwatch that charges the time of training steps to one part at a time.
class TimeSplit {
 public:
  TimeSplit();

  /// Resets the measurement.
  void reset();

  /// A scope that is measured, beginning with StepPart::other.
  class Running {
   public:
    explicit Running(TimeSplit& split) : split_(split) { split_.resume(); }
    ~Running() { split_.enter_slot(kOutside); }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

   private:
    TimeSplit& split_;
  };

  /// From here on time belongs to `part`.
  void enter(StepPart part) { enter_slot(static_cast<size_t>(part)); }
  /// Counts a step whose batch has arrived, and begins its transfer.
  void begin_step() {
    ++steps_;
    enter(StepPart::transfer);
  }

  [[nodiscard]] StepTimes times() const;

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kOutside = kStepParts;  // between runs of the loop

  // The CPU's time-stamp counter if it is invariant, which takes a third of the time of a clock reading; its rate is
  // determined by comparing the two. A sum over parts telescopes, so a difference between cores only shifts a little
  // time from one part to another.
  [[nodiscard]] uint64_t ticks() const {
#if defined(__x86_64__)
    if (steady_counter_) return __builtin_ia32_rdtsc();
#endif
    return static_cast<uint64_t>(Clock::now().time_since_epoch().count());
  }
  void enter_slot(size_t slot) {
    const uint64_t now = ticks();
    ticks_[slot_] += now - last_;
    last_ = now;
    slot_ = slot;
  }
  void resume();
  struct Reading {
    uint64_t ticks = 0;
    Clock::time_point time = {};
  };
  /// Both clocks at one moment.
  [[nodiscard]] Reading read_clocks() const;

  bool steady_counter_;
  size_t slot_ = kOutside;
  uint64_t last_ = 0;
  std::array<uint64_t, kStepParts + 1> ticks_ = {};
  int64_t steps_ = 0;
  Reading first_ = {};  // when the measuring began
};

/// "waiting for data 43 % of the time: raise num_workers (0 now, 8 cores here)" if training waits for data, else "".
/// `num_workers`: of the loader; unset if it has no such option.
[[nodiscard]] std::string data_wait_text(const StepTimes& times, std::optional<int64_t> num_workers, int64_t cores);

/// Returns whether training waits for data: a fifth of the time or more, over at least two seconds and ten steps.
[[nodiscard]] bool data_is_bottleneck(const StepTimes& times);

}  // namespace levin
