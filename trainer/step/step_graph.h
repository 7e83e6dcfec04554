// TrainerOptions::cuda_graph: the training step is recorded once, and then the device repeats it by itself. Launching
// its hundreds of kernels one by one costs the host more than small steps cost the GPU; a recording is one launch.
//
// Recorded are training_step, backward, clipping and the update; of an accumulation window the first, a middle and the
// last batch apart. Each batch is copied into the same memory. A window that differs from what was recorded (another
// shape of batch, another number of batches) runs as it always did. What records is the strategy's StepRecorder.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "levin/core/device_work.h"
#include "levin/trainer/metrics.h"
#include "levin/trainer/run/run.h"
#include "levin/trainer/run/window.h"
#include "levin/trainer/step/step_notes.h"

namespace torch::nn {
class Module;
}

namespace levin {

// Note [What a recorded step leaves to the host]
// Host code inside a recorded step runs once, when it is recorded. What must happen at each repetition is noted then:
// values that were logged, and whether a loss or a gradient was not finite. The update itself is taken or left by the
// device (Optimizer::step_unless), so that one recording holds all of the step; the host reads the flags after it, once
// a window, as it does without recordings, and counts accordingly.

class StepGraph {
 public:
  /// Windows that run as they always did before the first recording; PyTorch's number, and what loss scaling, momentum
  /// and libraries do at first is then behind.
  static constexpr int64_t kWarmUpWindows = 3;
  /// Recordings are dropped and made again if frozen layers, momentum or the like change; so often at most.
  static constexpr int64_t kMostChanges = 8;

  /// Throws ConfigError saying in one sentence why this run's steps cannot be recorded.
  explicit StepGraph(Run& run);

  /// automatic_step, repeated by the device where a recording fits. Throws Error saying in one sentence what cannot be
  /// recorded when recording fails.
  [[nodiscard]] at::Tensor step(const Batch& batch, int64_t batch_idx, const WindowPart& window);

  /// Batches that the device has repeated.
  [[nodiscard]] int64_t repeated() const { return repeated_; }
  /// How often a part of a window was recorded.
  [[nodiscard]] int64_t recorded() const { return recorded_; }

 private:
  /// Of a window: its only batch, its first, one between, its last.
  struct Part {
    std::unique_ptr<Recording> recording = nullptr;
    StepNotes notes = {};
    at::Tensor loss = {};
    at::Tensor unread_loss = {};  // Window::unread_loss after it
  };
  /// What recordings depend on besides the batch's shape.
  struct Settings {
    int64_t window_size = 0;
    int64_t optimizer_version = 0;
    std::vector<double> numbers = {};  // momentum and weight decay of each group
    std::vector<bool> flags = {};      // which parameters are trained, which modules are in training mode
    bool operator==(const Settings&) const = default;
  };

  [[nodiscard]] bool may_repeat(const Batch& batch);
  [[nodiscard]] bool fits(const Batch& batch) const;
  [[nodiscard]] at::Tensor run_as_it_is(const Batch& batch, int64_t batch_idx, const WindowPart& window);
  [[nodiscard]] at::Tensor repeat(Part& part, const Batch& batch, int64_t batch_idx, const WindowPart& window);
  void record(Part& part, int64_t batch_idx, const WindowPart& window);
  void run_recorded(Part& part, int64_t batch_idx, const WindowPart& window);
  void hold_gradients();
  void take_notes(const Part& part, const WindowPart& window);
  [[nodiscard]] Settings settings() const;
  void forget();

  Run& run_;
  Optimizer& optimizer_;
  std::shared_ptr<StepRecorder> recorder_;
  std::vector<at::Tensor> parameters_;
  std::vector<const torch::nn::Module*> modules_;  // the module's own
  std::array<Part, 4> parts_;
  Settings settings_;
  Batch inputs_;                       // what the recordings read
  std::vector<at::Tensor> gradients_;  // what they write, by parameter
  int64_t warm_up_left_ = kWarmUpWindows;
  int64_t changes_ = 0;
  bool warms_up_ = false;        // the running window does
  bool window_repeats_ = false;  // the running window began with a recording
  bool told_of_shape_ = false;
  int64_t repeated_ = 0;
  int64_t recorded_ = 0;
};

}  // namespace levin
