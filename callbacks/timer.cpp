#include "levin/callbacks/timer.h"

#include <algorithm>

#include "levin/core/process/console.h"
#include "levin/trainer/trainer.h"

namespace levin {

Timer::Timer(TimerOptions options) : options_(checked(std::move(options), "TimerOptions")) {}

void Timer::start(Stage stage) {
  clocks_[static_cast<size_t>(stage)].started = std::chrono::steady_clock::now();
}

void Timer::stop(Stage stage) {
  Clock& clock = clocks_[static_cast<size_t>(stage)];
  clock.before = time_elapsed(stage);
  clock.started.reset();
}

Seconds Timer::time_elapsed(Stage stage) const {
  const Clock& clock = clocks_[static_cast<size_t>(stage)];
  if (!clock.started) return clock.before;
  return clock.before + (std::chrono::steady_clock::now() - *clock.started);
}

std::optional<Seconds> Timer::time_remaining() const {
  if (!options_.duration) return std::nullopt;
  return std::max(Seconds(0), *options_.duration - time_elapsed());
}

// A run that resumes with no time left takes no step.
void Timer::on_fit_start(Trainer& trainer, LightningModule&) {
  check(trainer);
}

void Timer::on_train_batch_end(Trainer& trainer, LightningModule&, const at::Tensor&, const Batch&, int64_t) {
  if (options_.interval == TimerInterval::step) check(trainer);
}

void Timer::on_train_epoch_end(Trainer& trainer, LightningModule&) {
  if (options_.interval == TimerInterval::epoch) check(trainer);
}

void Timer::check(Trainer& trainer) {
  if (!options_.duration || trainer.should_stop()) return;
  if (!trainer.strategy().ranks().any(time_elapsed() >= *options_.duration)) return;
  const std::string reason = "Timer: the time of " + readable_duration(*options_.duration) + " is up";
  trainer.request_stop(reason);
  if (options_.verbose) Console::instance().print(reason + ".");
}

State Timer::state_dict() const {
  State state;
  for (const Stage stage : {Stage::fit, Stage::validate, Stage::test, Stage::predict}) {
    state.set("elapsed." + std::to_string(static_cast<int>(stage)), time_elapsed(stage).count());
  }
  return state;
}

void Timer::load_state_dict(const State& saved) {
  for (const Stage stage : {Stage::fit, Stage::validate, Stage::test, Stage::predict}) {
    clocks_[static_cast<size_t>(stage)] = {
        std::nullopt, Seconds(saved.get<double>("elapsed." + std::to_string(static_cast<int>(stage))))};
  }
}

}  // namespace levin
