// Implements TrainerOptions::record_steps: the training step is recorded once, and then replayed. Deciding on and
// launching each of its operators costs the host more than small steps cost the device. A GPU replays a captured graph,
// which is one launch; a CPU calls the operators below autograd, without building a graph and walking it.
//
// A recording contains training_step, backward, clipping and the update; the first, a middle and the last batch of an
// accumulation window are recorded separately. The host performs clipping and the update itself if a part of them is
// host code (updates_on_host). Each batch is copied into the same memory. A window that differs from the recorded one
// (a batch of a different shape, a different number of batches) runs eagerly. The strategy's StepRecorder records.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "levin/trainer/step/left_memory.h"
#include "levin/trainer/step/recorded_gradients.h"
#include "levin/trainer/step/recorded_part.h"
#include "levin/trainer/step/recording_settings.h"
#include "levin/trainer/step/step_core.h"
#include "levin/trainer/step/window.h"

namespace levin {

// Note [What a recorded step leaves to the host]
// Host code inside a recorded step runs once, while it is recorded. What must happen at each replay is noted then:
// logged values, and whether a loss or a gradient was not finite. The operators themselves perform or skip the update
// (Optimizer::step_unless), so one recording contains the entire step; the host reads the flags afterwards, once per
// window, as it does otherwise, and counts accordingly.

// Note [Ranks that replay together]
// A collective of NCCL's must be captured on all ranks or on none, and a graph that contains one is launched by all
// ranks or by none (NCCL's user guide, "Using NCCL with CUDA Graphs"). So before the last batch of each window, the
// only one that communicates, ranks exchange, through their hosts' memory, whether they can replay it, and whether they
// have recorded it. The host is ahead of the device meanwhile. The flags of ranks are sent with that message and not
// with the gradients, except whether losses are finite, which the device finds. A rank that can no longer record
// informs the others once, and from then on all run their steps eagerly.

/// The recorded training steps of a fit.
class StepGraph : RecordedSteps {
 public:
  /// The number of windows that run eagerly before the first is recorded: PyTorch's number; by then loss scaling,
  /// momentum and libraries have done their initial work.
  static constexpr int64_t kWarmUpWindows = 3;
  /// Steps are recorded again if frozen layers, momentum or the like change. The rest of a window in which they change
  /// runs eagerly.
  using RecordedSteps::kMaxChanges;
  /// A momentum that has moved this often is moved by a schedule: from then on the host performs the update.
  static constexpr int64_t kMaxMoves = 2;

  /// Returns null if the run's steps cannot be recorded and `record` is automatic. If it is yes, throws ConfigError
  /// with one sentence on why they cannot.
  [[nodiscard]] static std::shared_ptr<StepGraph> make(StepCore& core, RecordSteps record);

  /// Runs automatic_step, or replays it if there is a recording that fits. If a GPU cannot capture it, throws Error
  /// with one sentence on what cannot be captured; on a CPU, logs a warning and continues eagerly.
  [[nodiscard]] at::Tensor step(const Batch& batch, int64_t batch_idx, const WindowPart& window);

  /// Returns the number of batches that were replayed.
  [[nodiscard]] int64_t repeated() const { return repeated_; }
  /// Returns how often a part of a window was recorded.
  [[nodiscard]] int64_t recorded() const { return recorded_; }

 private:
  using Part = RecordedPart;

  StepGraph(StepCore& core, RecordSteps record);

  [[nodiscard]] RecordingSettings settings_now() const;
  [[nodiscard]] bool may_repeat(const Batch& batch);
  [[nodiscard]] bool is_unchanged() const;
  [[nodiscard]] std::string problem_before_replay(const WindowPart& window) const;
  [[nodiscard]] bool do_all_repeat(bool repeats, const WindowPart& window);
  [[nodiscard]] at::Tensor run_eagerly(const Batch& batch, int64_t batch_idx, const WindowPart& window);
  [[nodiscard]] at::Tensor step_eagerly(const Batch& batch, int64_t batch_idx, const WindowPart& window);
  [[nodiscard]] at::Tensor repeat(const Batch& batch, int64_t batch_idx, const WindowPart& window);
  // These return why the steps are not to be recorded any more; "" if they may be.
  [[nodiscard]] std::string record(Part& part, int64_t batch_idx, const WindowPart& window);
  [[nodiscard]] std::string replay(Part& part, int64_t batch_idx, const WindowPart& window);
  [[nodiscard]] std::string check(Part& part, int64_t batch_idx, const WindowPart& window);

  [[nodiscard]] std::string prepare_replays(const std::vector<size_t>& uses_before);
  [[nodiscard]] std::vector<at::Tensor> known_results(const Part& part) const;
  void run_recorded(Part& part, int64_t batch_idx, const WindowPart& window);
  void take_notes(const Part& part, const WindowPart& window);
  void write_flags();
  void act_on_flags(const at::Tensor& received_flags);
  [[nodiscard]] bool is_checked_twice() const;
  void time_window(const WindowPart& window, double seconds);
  void record_anew(const RecordingSettings& now);
  void drop_recordings() override;
  void forget();
  void report(const RecordingTrial& trial) override;
  void stop() override;

  bool updates_on_host_;  // stays true once it is
  Optimizer& optimizer_;
  SettingsReader reader_;
  std::array<Part, Part::kCount> parts_;
  RecordingSettings settings_;              // of the recordings, or of the window that prepares them
  RecordedGradients gradients_;             // what they write
  std::vector<StepMemory::Storage> found_;  // other memory that recordings on a device use
  at::Tensor own_flags_;                    // this rank's flags, which recordings read on a CPU
  int64_t warm_up_left_ = kWarmUpWindows;
  int64_t moves_ = 0;                  // changes of Settings::numbers
  bool syncs_replays_across_ranks_;    // ranks replay together, and as far as known none has given up
  bool uses_recorder_stream_ = false;  // eager steps run on the recorder's stream
  bool warms_up_ = false;              // the running window prepares recording
  bool window_repeats_ = false;        // the running window began with a recording
  bool warned_of_shape_ = false;
  int64_t repeated_ = 0;
  int64_t recorded_ = 0;

  // record_steps: auto, until it is decided.
  bool trial_runs_eagerly_ = false;  // the running window is run eagerly, to be timed
  bool window_is_uniform_ = false;   // all of its batches are replayed, or all run eagerly
  double window_seconds_ = 0;
};

}  // namespace levin
