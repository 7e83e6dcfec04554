// Ends a run after a given time, counted across restarts; TrainerOptions.max_time adds one.
//
//   .callbacks = {levin::Timer({.duration = std::chrono::hours(12)})}
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <string>

#include "levin/core/options/fields.h"
#include "levin/core/options/units.h"
#include "levin/trainer/callback.h"

namespace levin {

/// When the time is checked.
enum class TimerInterval { step, epoch };
template <>
struct EnumNames<TimerInterval> {
  static constexpr EnumName<TimerInterval> names[] = {{"step", TimerInterval::step}, {"epoch", TimerInterval::epoch}};
};

/// Options of Timer.
struct TimerOptions {
  std::optional<Seconds> duration = std::nullopt;  // unset: only measures
  EnumOption<TimerInterval> interval = TimerInterval::step;
  bool verbose = true;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("duration", &TimerOptions::duration, "longest time to train: DD:HH:MM:SS or 90min; null: only measure"),
        field("interval", &TimerOptions::interval, "check the time after each step or each epoch"),
        field("verbose", &TimerOptions::verbose, "print when the time is up"));
  }
};

/// A callback that measures the time of each stage, and stops training once .duration has passed. Hooks run on every
/// rank; stopping is collective.
class Timer final : public Callback {
 public:
  using Options = TimerOptions;
  explicit Timer(Defaults = {}) : Timer(TimerOptions()) {}
  explicit Timer(TimerOptions options);

  void on_fit_start(Trainer& trainer, LightningModule&) override;
  void on_train_start(Trainer&, LightningModule&) override { start(Stage::fit); }
  void on_train_end(Trainer&, LightningModule&) override { stop(Stage::fit); }
  void on_validation_start(Trainer&, LightningModule&) override { start(Stage::validate); }
  void on_validation_end(Trainer&, LightningModule&) override { stop(Stage::validate); }
  void on_test_start(Trainer&, LightningModule&) override { start(Stage::test); }
  void on_test_end(Trainer&, LightningModule&) override { stop(Stage::test); }
  void on_predict_start(Trainer&, LightningModule&) override { start(Stage::predict); }
  void on_predict_end(Trainer&, LightningModule&) override { stop(Stage::predict); }
  void on_train_batch_end(Trainer& trainer, LightningModule&, const at::Tensor&, const Batch&, int64_t) override;
  void on_train_epoch_end(Trainer& trainer, LightningModule&) override;

  [[nodiscard]] State state_dict() const override;
  void load_state_dict(const State& saved) override;
  [[nodiscard]] std::string state_key() const override { return "Timer"; }

  /// Time spent so far, including earlier parts of a resumed run. Training includes its validations.
  [[nodiscard]] Seconds time_elapsed(Stage stage = Stage::fit) const;
  /// Time left for training, at least 0. Unset without a duration.
  [[nodiscard]] std::optional<Seconds> time_remaining() const;

 private:
  struct Clock {
    std::optional<std::chrono::steady_clock::time_point> started = std::nullopt;
    Seconds before = Seconds(0);
  };

  void start(Stage stage);
  void stop(Stage stage);
  void check(Trainer& trainer);

  TimerOptions options_;
  std::array<Clock, 4> clocks_ = {};  // by Stage
};

}  // namespace levin
