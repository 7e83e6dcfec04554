#include "levin/trainer/step/recorded_evaluation.h"

#include <bit>
#include <chrono>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/log.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/step/left_memory.h"
#include "levin/trainer/step/step_core.h"
#include "levin/trainer/step/step_notes.h"
#include "levin/trainer/step/step_values.h"

namespace levin {

std::shared_ptr<RecordedEvaluation> RecordedEvaluation::make(StepCore& core) {
  if (core.settings.record_steps == RecordSteps::no || core.replicas != nullptr) return nullptr;
  std::shared_ptr<StepRecorder> recorder;
  try {
    recorder = core.strategy.recorder().make_recorder();
  } catch (const ConfigError& error) {
    log::trainer.info("{} Evaluation steps run eagerly.", error.what());
    return nullptr;
  }
  if (recorder == nullptr || !recorder->runs_step()) {
    log::trainer.info("record_steps: evaluation steps of {} on {} run eagerly", core.strategy.name(),
                      core.strategy.placement().device().str());
    return nullptr;
  }
  return std::shared_ptr<RecordedEvaluation>(new RecordedEvaluation(core, std::move(recorder)));
}

RecordedEvaluation::RecordedEvaluation(StepCore& core, std::shared_ptr<StepRecorder> recorder)
    : RecordedSteps(core, std::move(recorder), core.settings.record_steps, "evaluation steps") {}

void RecordedEvaluation::begin_pass() {
  const bool fitted = std::exchange(replays_of_pass_, 0) > 0;
  if (!gave_up_ && recording_ != nullptr && !fitted) forget();
}

void RecordedEvaluation::drop_recordings() {
  recording_.reset();
  recorded_ = {};
  inputs_ = {};
}

void RecordedEvaluation::forget() {
  drop_recordings();
  replays_ = 0;
  if (++changes_ <= kMaxChanges) return;
  log::trainer.info(
      "record_steps: the weights' memory or the batches' shapes have changed {} times, so evaluation steps "
      "run eagerly",
      changes_);
  stop();
}

at::Tensor RecordedEvaluation::step(const Batch& batch, int64_t batch_idx, Step step) {
  if (!gave_up_ && (inputs_.empty() || batch.structure() != nullptr)) give_up_if_unrecordable(batch);
  if (gave_up_ || batch.count() == 0) return step(batch);
  if (warm_up_left_ > 0) {
    --warm_up_left_;
    return step(batch);
  }
  if (!inputs_.empty() && !inputs_.fits(batch)) return step(batch);
  if (recording_ != nullptr && reader_->read() != settings_) {  // hooks may change them between two batches
    forget();
    return step(batch);
  }
  const bool is_timed = trial_ && replays_ >= 2 && replays_of_pass_ > 0;
  const auto start = std::chrono::steady_clock::now();
  const bool runs = is_timed && !trial_->replays_next();
  at::Tensor prediction = runs ? step(batch) : repeat(batch, batch_idx, step);
  const bool is_check = !runs && std::has_single_bit(static_cast<uint64_t>(replays_));
  if (is_timed && !is_check) {
    if (trial_) add_time(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return prediction;
}

void RecordedEvaluation::report(const RecordingTrial& trial) {
  const std::string name(hook_name(core_.running.place.hook));
  if (trial.is_faster()) {
    log::trainer.info("record_steps: auto: {} is replayed from a recording: {} each", name, trial.text());
  } else {
    log::trainer.info("record_steps: auto: a recorded {} is not faster ({}), so it runs eagerly", name, trial.text());
  }
}

at::Tensor RecordedEvaluation::repeat(const Batch& batch, int64_t batch_idx, Step step) {
  const bool is_new = recording_ == nullptr;
  if (is_new) {
    reader_.emplace(core_.module);
    settings_ = reader_->read();
    inputs_.make(batch);
  }
  inputs_.take(batch);
  std::string problem;
  if (is_new) {
    problem = record(step);
  } else {
    ++replays_;
    const bool is_checked = replays_of_pass_ == 0 || std::has_single_bit(static_cast<uint64_t>(replays_));
    if (is_checked) {
      problem = check(batch_idx, step);
    } else {
      recording_->replay();
    }
  }
  ++replays_of_pass_;
  repeat_notes(core_, recorded_.notes);
  // The next replay writes to the recording's memory.
  at::Tensor prediction = recorded_.prediction.defined() ? recorded_.prediction.clone() : at::Tensor();
  if (!problem.empty()) give_up(problem);
  return prediction;
}

std::string RecordedEvaluation::record(Step step) {
  const BatchUses uses(inputs_);
  recording_ = recorder_->record([this, step] { run_recorded(recorded_, step); });
  if (!recorded_.notes.refusal.empty()) return recorded_.notes.refusal;
  if (recording_ == nullptr) return recorder_->refusal();
  if (!recorded_.problem.empty()) return recorded_.problem;
  if (!uses.have_grown(known_results(recorded_), recording_.get())) return "";
  return kept_batch_text(hook_name(core_.running.place.hook));
}

std::vector<at::Tensor> RecordedEvaluation::known_results(const Result& result) {
  std::vector<at::Tensor> known = {result.prediction};
  result.notes.add_results(known);
  return known;
}

std::string RecordedEvaluation::check(int64_t batch_idx, Step step) {
  Result own;
  const std::string name(hook_name(core_.running.place.hook));
  const std::string problem = check_against(
      *recording_,
      {.step = [&] { run_recorded(own, step); },
       .of_step = [&] { return results_of(own); },
       .of_replay = [&] { return results_of(recorded_); }},
      own, [&] { return known_results(own); }, name);
  if (problem.empty()) return "";
  recorded_ = std::move(own);
  return name + " of batch " + std::to_string(batch_idx) + " differs from the recorded step: " + problem;
}

void RecordedEvaluation::run_recorded(Result& result, Step step) {
  result.notes = StepNotes{.step_runs = true};
  RecordingScope scope(core_, result.notes);
  StepMemory memory(/*holds=*/false);
  result.prediction = step(inputs_.lent());
  // A tensor of its own, so that one that the step keeps is noticed.
  if (result.prediction.defined()) result.prediction = result.prediction.detach();
  scope.check_metrics();
  StepResults results = {{"its prediction", result.prediction}};
  for (const auto& [name, value] : result.notes.outputs) results.emplace_back("the output \"" + name + "\"", value);
  result.problem = memory.problem(results, known_results(result), hook_name(core_.running.place.hook));
}

StepResults RecordedEvaluation::results_of(const Result& result) {
  StepResults results = {{"the prediction", result.prediction}};
  for (const auto& value : result.notes.logged)
    results.emplace_back("the logged value \"" + value.name + "\"", value.value);
  for (const auto& [name, value] : result.notes.outputs) results.emplace_back("the output \"" + name + "\"", value);
  return results;
}

}  // namespace levin
