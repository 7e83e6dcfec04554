// Measures a fit from on_train_start to on_train_end: epochs, logging, progress and checkpoints, without the set-up.
// Peers in Python measure the same.
#pragma once

#include <chrono>
#include <cstdint>

#include "levin/trainer/callback.h"
#include "levin/trainer/trainer.h"

namespace bench {

class Stopwatch : public levin::Callback {
 public:
  void on_train_start(levin::Trainer&, levin::LightningModule&) override { start_ = Clock::now(); }
  void on_train_end(levin::Trainer& trainer, levin::LightningModule&) override {
    seconds_ = std::chrono::duration<double>(Clock::now() - start_).count();
    steps_ = trainer.global_step();
  }
  [[nodiscard]] double microseconds_a_step() const { return seconds_ * 1e6 / static_cast<double>(steps_); }
  /// `items`: of a step.
  [[nodiscard]] double items_a_second(int64_t items) const { return static_cast<double>(steps_ * items) / seconds_; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_;
  double seconds_ = 0;
  int64_t steps_ = 0;
};

}  // namespace bench
