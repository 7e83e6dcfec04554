// What recorded training steps (step_graph.h) and recorded evaluation steps (recorded_evaluation.h) have in common: the
// recorder, the batch that recordings read, the trial of record_steps: auto, checks against the step itself, and how
// recording ends.
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <c10/util/FunctionRef.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/core/device_work.h"
#include "levin/trainer/step/check_replay.h"
#include "levin/trainer/step/recorded_batch.h"
#include "levin/trainer/step/step_notes.h"

namespace levin {

/// The trial of record_steps: auto. Finds out whether replaying steps is faster than running them by doing both in
/// turn.
class RecordingTrial {
 public:
  /// Returns whether the next accumulation window is to be replayed; otherwise it is to run eagerly.
  [[nodiscard]] bool replays_next() const { return windows_ % 2 == 0; }
  /// Records how many seconds the window took for which replays_next() was called.
  void add(double seconds);

  [[nodiscard]] bool is_over() const { return windows_ == kWindows; }
  /// Returns whether replays are faster by more than noise. Only if is_over().
  [[nodiscard]] bool is_faster() const { return fastest_[1] < kMaxTimeRatio * fastest_[0]; }
  /// Returns "31 us instead of 75 us".
  [[nodiscard]] std::string text() const;

 private:
  static constexpr int64_t kWindows = 16;
  static constexpr double kMaxTimeRatio = 0.95;

  int64_t windows_ = 0;
  std::array<double, 2> fastest_ = {-1, -1};  // eagerly, replayed; seconds
};

/// A run of a step that is recorded, or with which a replay is compared.
struct RecordedRun {
  StepNotes notes = {};
  std::string problem = "";  // a clause about what the step keeps; "": nothing
};

/// The base of steps that are recorded once and then replayed.
class RecordedSteps {
 public:
  /// Steps are recorded again if what they depend on changes; at most this often.
  static constexpr int64_t kMaxChanges = 8;

 protected:
  /// `name`: what messages call the steps, in plural.
  RecordedSteps(StepCore& core, std::shared_ptr<StepRecorder> recorder, RecordSteps record, const char* name);
  virtual ~RecordedSteps() = default;
  RecordedSteps(const RecordedSteps&) = delete;
  RecordedSteps& operator=(const RecordedSteps&) = delete;

  /// Releases all recordings.
  virtual void drop_recordings() = 0;
  /// Reports the end of a trial.
  virtual void report(const RecordingTrial& trial) = 0;

  /// Makes all following steps run eagerly.
  virtual void stop();
  /// Warns, with the reason `why` (a clause), and stops.
  void give_up(const std::string& why);
  /// Stops if steps on this batch cannot be recorded: with a warning if the user has asked for recordings.
  void give_up_if_unrecordable(const Batch& batch);
  /// Adds the time of the window for which trial_->replays_next() was called. A trial that has ended is reported, and
  /// recording stops if it is not faster. Only while there is a trial.
  void add_time(double seconds);
  /// Runs the step itself into `own`, and compares it with a replay. Returns why replays are wrong, as a clause; "" if
  /// they are right. `known`: the tensors that the run itself holds from the step; `hook`: for messages.
  [[nodiscard]] std::string check_against(Recording& recording, const ReplaySides& sides, const RecordedRun& own,
                                          c10::function_ref<std::vector<at::Tensor>()> known, std::string_view hook);

  StepCore& core_;
  std::shared_ptr<StepRecorder> recorder_;
  std::optional<RecordingTrial> trial_;  // record_steps: auto, until it is decided
  RecordedBatch inputs_;                 // what the recordings read
  int64_t changes_ = 0;
  bool gave_up_ = false;

 private:
  const char* name_;
};

}  // namespace levin
