#include "levin/trainer/step/recorded_steps.h"

#include <cstdio>
#include <utility>

#include "levin/core/process/log.h"
#include "levin/trainer/step/run_messages.h"

namespace levin {

namespace {

std::string microseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g us", seconds * 1e6);
  return text;
}

}  // namespace

// The fastest window of each kind: other programs only make windows slower.
void RecordingTrial::add(double seconds) {
  double& fastest = fastest_[static_cast<size_t>(replays_next())];
  if (fastest < 0 || seconds < fastest) fastest = seconds;
  ++windows_;
}

std::string RecordingTrial::text() const {
  return microseconds(fastest_[1]) + " instead of " + microseconds(fastest_[0]);
}

RecordedSteps::RecordedSteps(StepCore& core, std::shared_ptr<StepRecorder> recorder, RecordSteps record,
                             const char* name)
    : core_(core), recorder_(std::move(recorder)), name_(name) {
  if (record == RecordSteps::automatic) trial_.emplace();
}

void RecordedSteps::stop() {
  gave_up_ = true;
  drop_recordings();
  trial_.reset();
}

void RecordedSteps::give_up(const std::string& why) {
  warn_of_run(about_recording(why + ". The " + name_ + " are not recorded, and run eagerly."));
  stop();
}

void RecordedSteps::give_up_if_unrecordable(const Batch& batch) {
  const std::string why = why_not_recorded(batch);
  if (why.empty()) return;
  if (!trial_) return give_up(why);
  log::trainer.info("{}", about_recording("auto: " + why + ", so " + name_ + " run eagerly."));
  stop();
}

void RecordedSteps::add_time(double seconds) {
  trial_->add(seconds);
  if (!trial_->is_over()) return;
  const RecordingTrial trial = *std::exchange(trial_, std::nullopt);
  report(trial);
  if (!trial.is_faster()) stop();
}

std::string RecordedSteps::check_against(Recording& recording, const ReplaySides& sides, const RecordedRun& own,
                                         c10::function_ref<std::vector<at::Tensor>()> known, std::string_view hook) {
  const BatchUses uses(inputs_);
  std::string problem = check_replay(recording, sides);
  if (problem.empty()) problem = own.notes.refusal;
  if (problem.empty()) problem = own.problem;
  if (problem.empty() && uses.have_grown(known(), nullptr)) problem = kept_batch_text(hook);
  return problem;
}

}  // namespace levin
