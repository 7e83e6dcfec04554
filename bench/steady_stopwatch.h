// Measures the steps of a fit after the first ones, to the end of the last: what comes once (capturing a graph, the
// first kernels, the checkpoint at the end) is left out. A GPU works on after the host has done its part, so both ends
// wait for it. Peers in Python measure the same.
#pragma once

#include <chrono>
#include <cstdint>
#include <stdexcept>

#include "levin/libtorch/device_memory.h"
#include "levin/trainer/callback.h"
#include "levin/trainer/trainer.h"

namespace bench {

/// The first steps, which are excluded from measurements on a GPU, here and in peers/.
inline constexpr int64_t kSkippedSteps = 8;

/// Waits until the GPU has finished its work if `gpu` is true, and returns the time.
[[nodiscard]] inline std::chrono::steady_clock::time_point time_when_done(bool gpu) {
  if (gpu) levin::synchronize(at::Device(at::kCUDA, 0));
  return std::chrono::steady_clock::now();
}

class SteadyStopwatch : public levin::Callback {
 public:
  /// Measures a fit of kSkippedSteps + `steps` steps.
  SteadyStopwatch(int64_t steps, bool gpu) : steps_(steps), gpu_(gpu) {}

  void on_train_batch_end(levin::Trainer& trainer, levin::LightningModule&, const at::Tensor&, const levin::Batch&,
                          int64_t) override {
    const int64_t done = trainer.global_step();
    if (done == kSkippedSteps) start_ = time_when_done(gpu_);
    if (done == kSkippedSteps + steps_) seconds_ = std::chrono::duration<double>(time_when_done(gpu_) - start_).count();
  }

  [[nodiscard]] double seconds_a_step() const {
    if (seconds_ <= 0) throw std::runtime_error("the fit ended before all of its steps");
    return seconds_ / static_cast<double>(steps_);
  }

 private:
  int64_t steps_;
  bool gpu_;
  std::chrono::steady_clock::time_point start_;
  double seconds_ = 0;
};

}  // namespace bench
