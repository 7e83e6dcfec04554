// TrainerOptions::cuda_graph: the training step is captured once, and then replayed on the device. Launching hundreds
// of kernels one by one costs the host more than small steps cost the GPU; a captured graph is one launch.
//
// Recorded are training_step, backward, clipping and the update; of an accumulation window, the first, a middle and the
// last batch separately. Each batch is copied into the same memory. A window that differs from what was recorded
// (another shape of batch, another number of batches) runs without the graph. Capturing is done by the strategy's
// StepRecorder.
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
// Host code inside a captured step runs once, during capture. What must happen at each replay is noted then: logged
// values, and whether a loss or a gradient was not finite. The device itself performs or skips the update
// (Optimizer::step_unless), so one graph contains the entire step; the host reads the flags afterwards, once per
// window, as it does without graphs, and counts accordingly.

class StepGraph {
 public:
  /// Windows that run without a graph before the first capture: PyTorch's number; by then loss scaling, momentum and
  /// libraries have done their initial work.
  static constexpr int64_t kWarmUpWindows = 3;
  /// Graphs are captured again if frozen layers, momentum or the like change; at most this often.
  static constexpr int64_t kMostChanges = 8;

  /// Throws ConfigError with one sentence on why this run's steps cannot be captured.
  explicit StepGraph(Run& run);

  /// automatic_step, replayed on the device if a graph fits. If capture fails, throws Error with one sentence on what
  /// cannot be captured.
  [[nodiscard]] at::Tensor step(const Batch& batch, int64_t batch_idx, const WindowPart& window);

  /// Batches that were replayed.
  [[nodiscard]] int64_t repeated() const { return repeated_; }
  /// How often a part of a window was captured.
  [[nodiscard]] int64_t recorded() const { return recorded_; }

 private:
  /// Of a window: its only batch, its first, one between, its last.
  struct Part {
    std::unique_ptr<Recording> recording = nullptr;
    StepNotes notes = {};
    at::Tensor loss = {};
    at::Tensor unread_loss = {};  // Window::unread_loss after it
  };
  /// What graphs depend on besides the batch's shape.
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
  bool warms_up_ = false;        // the running window is captured
  bool window_repeats_ = false;  // the running window began with a recording
  bool told_of_shape_ = false;
  int64_t repeated_ = 0;
  int64_t recorded_ = 0;
};

}  // namespace levin
