// What the host does after each replay of a recorded step, and how a step is recorded.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/core/device_work.h"
#include "levin/core/options/error.h"
#include "levin/metrics/update_count.h"
#include "levin/trainer/hook.h"
#include "levin/trainer/metrics.h"
#include "levin/trainer/step/step_context.h"
#include "levin/trainer/step/step_core.h"

namespace levin {

/// What the host does after each replay of a part of a window.
struct StepNotes {
  struct Logged {
    Hook hook;
    std::string name;
    at::Tensor value;  // on the device: overwritten by each replay
    LogOptions options;
  };
  std::vector<Logged> logged = {};
  StepContext::Outputs outputs = {};  // of step_output, overwritten as well
  at::Tensor flags = {};  // WindowVerdict::decision_flags(); undefined: not needed, or the window has not ended
  at::Tensor loss = {};   // the sum of the losses that the flags are about
  // With several ranks, if the step reduces gradients: this rank's flags, which the host writes before each replay, and
  // the flags of all ranks after it (StrategyRecorder::backward_recorded).
  at::Tensor own_flags = {};
  at::Tensor received_flags = {};

  bool updates_on_host = false;  // the window's update is not recorded; the host performs it afterwards
  bool step_runs = false;        // the step runs while it is recorded, so what cannot be recorded need not end the run
  std::string refusal = "";      // a clause on why it cannot be recorded; "": it can

  /// Adds the tensors that the step leaves for the host.
  void add_results(std::vector<at::Tensor>& to) const;
};

/// Marks the step that is being recorded as one that cannot be, with the reason `why` (a clause). Throws Error if the
/// step therefore cannot continue (a captured step does not run).
void refuse_recording(StepCore& core, const std::string& why);

/// Returns the text of a message with the name of the option.
[[nodiscard]] std::string about_recording(const std::string& text);

/// A scope in which a step is recorded: what the host must do after each replay goes to `notes`.
class RecordingScope final : public StepContext {
 public:
  RecordingScope(StepCore& core, StepNotes& notes)
      : core_(core),
        outer_(*std::exchange(core.context, this)),
        outer_notes_(std::exchange(core.recording, &notes)),
        updates_(metrics::updates_of_this_thread()) {}
  ~RecordingScope() override {
    core_.context = &outer_;
    core_.recording = outer_notes_;
  }
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

  /// Calls refuse_recording() if the step has updated a metric, which also counts on the host. Called after the step.
  void check_metrics() const {
    if (metrics::updates_of_this_thread() == updates_) return;
    refuse_recording(core_,
                     "the step updates a metric, which a recorded step would not do at each batch; update it in "
                     "the hook after the batch");
  }

  void log(std::string_view name, const at::Tensor& value, const LogOptions& options) override;
  /// Calls refuse_recording(): a number from the host would be the same in every replay.
  void log(std::string_view name, double value, const LogOptions& options) override;
  void log(std::string_view name, metrics::Metric& metric, const LogOptions& options) override;
  void publish(std::string_view name, const at::Tensor& value) override;
  void set_loss_weight(const at::Tensor& weight) override;

 private:
  void refuse_logged(std::string_view name);

  StepCore& core_;
  StepContext& outer_;
  StepNotes* outer_notes_;
  int64_t updates_;
};

/// The error of a step that the device cannot capture.
class CannotCapture final : public Error {
 public:
  explicit CannotCapture(std::string why);
  /// Returns the reason, a clause.
  [[nodiscard]] const std::string& why() const { return why_; }

 private:
  std::string why_;
};

/// Records a step with the recorder and returns the recording; null if recorder.record() returns null. Throws
/// CannotCapture if a step that is captured waits for the device, and what the step throws.
[[nodiscard]] std::unique_ptr<Recording> capture_step(StepRecorder& recorder, const std::function<void()>& step);

// Ranks that replay recorded steps together (StrategyRecorder::replays_together) agree on it before the last batch of
// each window, whose backward reduces their gradients.

/// What a rank can do with the batch, or what all ranks can do.
struct ReplayVote {
  bool replays = true;      // the batch and the window so far fit what is recorded
  bool is_recorded = true;  // there is a recording of this part of a window
  bool continues = true;    // steps may still be recorded
};

/// Returns what is true for all ranks. Also sends this rank's flags and receives the flags of all ranks, as with
/// gradients. Every rank calls it; blocks until all have called it.
[[nodiscard]] ReplayVote agree_on_replay(StepCore& core, const ReplayVote& own);

}  // namespace levin
