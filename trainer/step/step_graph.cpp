#include "levin/trainer/step/step_graph.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <tuple>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/process/log.h"
#include "levin/core/process/process_memory.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/step/automatic_step.h"
#include "levin/trainer/step/check_recordable.h"
#include "levin/trainer/step/run_messages.h"
#include "levin/trainer/step/step_notes.h"
#include "levin/trainer/step/step_values.h"
#include "levin/trainer/step/undo_scope.h"
#include "levin/trainer/step/update.h"
#include "levin/trainer/step/window_verdict.h"

namespace levin {

StepGraph::StepGraph(StepCore& core, RecordSteps record)
    : RecordedSteps(core, recorder_for(core, record), record, "steps"),
      updates_on_host_(updates_on_host(core)),
      optimizer_(core.optimizers[0].optimizer()),
      reader_(core.module, optimizer_.parameters()),
      gradients_(optimizer_.parameters()),
      syncs_replays_across_ranks_(core.strategy.recorder().replays_together()) {
  if (!core.strategy.placement().device().is_cpu()) {
    recorder_->warm_up([this] { uses_recorder_stream_ = core_.strategy.recorder().use_recorder_stream(); });
  }
  if (!updates_on_host_) optimizer_.make_recordable();
  const std::string too_old = optimizer_.why_not_recordable();
  if (!too_old.empty()) {
    warn_of_run(about_recording(too_old + " The host performs the update after each replay."));
  }
}

std::shared_ptr<StepGraph> StepGraph::make(StepCore& core, RecordSteps record) {
  try {
    return std::shared_ptr<StepGraph>(new StepGraph(core, record));
  } catch (const ConfigError& error) {
    if (record == RecordSteps::yes) throw;
    log::trainer.info("{}", error.what());
    return nullptr;
  }
}

at::Tensor StepGraph::step(const Batch& batch, int64_t batch_idx, const WindowPart& window) {
  if (!gave_up_ && window.first && (inputs_.empty() || batch.structure() != nullptr)) give_up_if_unrecordable(batch);
  if (gave_up_ && !syncs_replays_across_ranks_) return step_eagerly(batch, batch_idx, window);
  const auto start = std::chrono::steady_clock::now();
  if (window.first) {
    window_is_uniform_ = true;
    window_repeats_ = !gave_up_ && !core_.skip_batch && may_repeat(batch);
  }
  const bool cut = window.last && core_.window.seen < core_.window.size;
  // A batch of the window that ran eagerly may have had a loss that is not finite.
  const bool may_repeat_now = !core_.skip_batch && !cut && !core_.window.has_nonfinite_loss;
  bool repeats = window_repeats_ && may_repeat_now && inputs_.fits(batch) && (window.first || is_unchanged());
  const std::string problem = repeats ? problem_before_replay(window) : "";
  if (!problem.empty()) {
    give_up(problem);
    repeats = false;
  }
  if (window.last && syncs_replays_across_ranks_) repeats = do_all_repeat(repeats, window);
  window_is_uniform_ = window_is_uniform_ && (repeats || (!window_repeats_ && trial_ && trial_runs_eagerly_));
  at::Tensor loss = repeats ? repeat(batch, batch_idx, window) : run_eagerly(batch, batch_idx, window);
  if (trial_) time_window(window, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return loss;
}

RecordingSettings StepGraph::settings_now() const {
  return reader_.read(updates_on_host_ ? nullptr : &optimizer_, core_.counters.accumulate);
}

// Decides for a window at its first batch, because all batches must use the same memory for gradients. Later ones may
// still differ in shape, or find different settings.
bool StepGraph::may_repeat(const Batch& batch) {
  warms_up_ = warm_up_left_ > 0;
  trial_runs_eagerly_ = false;
  if (warms_up_) {
    --warm_up_left_;
    settings_ = settings_now();
    return false;
  }
  // A window shortened by the end of an epoch divides its losses by a different number.
  if (core_.window.size != core_.counters.accumulate) return false;
  RecordingSettings now = settings_now();
  // The optimizer makes its state, and takes in what is trained now, in a window that runs eagerly.
  const bool is_new = inputs_.empty();
  if (is_new ? !now.is_prepared_by(settings_) : now != settings_) {
    record_anew(now);
    return false;
  }
  if (is_new) {
    settings_ = std::move(now);
    inputs_.make(batch);
    return true;
  }
  if (!inputs_.fits(batch)) return false;
  trial_runs_eagerly_ = trial_ && is_checked_twice() && !trial_->replays_next();
  return !trial_runs_eagerly_;
}

// Checks a window's later batches: recordings do not contain what callbacks change between two of them.
bool StepGraph::is_unchanged() const {
  return gradients_.are_in_place() && settings_now() == settings_;
}

std::string StepGraph::problem_before_replay(const WindowPart& window) const {
  if (std::any_of(found_.begin(), found_.end(), [](const auto& one) { return one.use_count() == 1; })) {
    return "training_step reads a tensor that was replaced after the step was recorded, and replays would read the old "
           "one; copy new numbers into it with copy_()";
  }
  return window.first ? gradients_.problem() : "";
}

// See Note [Ranks that replay together].
bool StepGraph::do_all_repeat(bool repeats, const WindowPart& window) {
  Part& part = parts_[Part::index(window)];
  const ReplayVote all =
      agree_on_replay(core_, {.replays = repeats, .is_recorded = part.recording != nullptr, .continues = !gave_up_});
  if (!all.continues) {
    syncs_replays_across_ranks_ = false;
    if (!gave_up_) log::trainer.info("another rank cannot record its steps any more, so they run eagerly");
    stop();
    return false;
  }
  if (!all.is_recorded) part.recording.reset();  // they record it together
  return all.replays;
}

bool StepGraph::is_checked_twice() const {
  return std::all_of(parts_.begin(), parts_.end(),
                     [](const Part& part) { return part.recording == nullptr || part.replays >= 2; });
}

// Counts windows that were only replayed, without a check, or only run eagerly.
void StepGraph::time_window(const WindowPart& window, double seconds) {
  window_seconds_ = window.first ? seconds : window_seconds_ + seconds;
  if (!window.last || !window_is_uniform_ || !is_checked_twice()) return;
  if (trial_->replays_next() != window_repeats_) return;
  add_time(window_seconds_);
}

void StepGraph::report(const RecordingTrial& trial) {
  if (trial.is_faster()) {
    note_of_run("record_steps: auto: steps are replayed from a recording: " + trial.text() + " each.");
  } else {
    log::trainer.info("record_steps: auto: a recorded step is not faster ({}), so steps run eagerly", trial.text());
  }
}

// OneCycleLR and CyclicLR move the momentum at every step, and a recorded update has the one it was recorded with.
void StepGraph::record_anew(const RecordingSettings& now) {
  if (now.numbers != settings_.numbers && ++moves_ >= kMaxMoves) updates_on_host_ = true;
  forget();
  settings_ = settings_now();
}

void StepGraph::drop_recordings() {
  parts_ = {};
  inputs_ = RecordedBatch();
  gradients_.clear();
  found_.clear();
}

void StepGraph::forget() {
  drop_recordings();
  warm_up_left_ = 1;
  if (++changes_ <= kMaxChanges) return;
  warn_of_run(about_recording(
      "what a step depends on (momentum, weight decay, frozen layers, the optimizer's tensors) has changed " +
      count_of(changes_, "time") + " since training began, so the steps are not recorded any more."));
  stop();
}

// The gradients stay where they are: the window may not be over.
void StepGraph::stop() {
  warms_up_ = window_repeats_ = false;
  RecordedSteps::stop();
}

at::Tensor StepGraph::run_eagerly(const Batch& batch, int64_t batch_idx, const WindowPart& window) {
  if (!inputs_.empty() && !core_.skip_batch && !inputs_.fits(batch) && !std::exchange(warned_of_shape_, true)) {
    warn_of_run(about_recording("batch " + std::to_string(batch_idx) + ' ' + difference_text(batch, inputs_.batch()) +
                                ", so such batches are not repeated from the recording."));
  }
  return step_eagerly(batch, batch_idx, window);
}

at::Tensor StepGraph::step_eagerly(const Batch& batch, int64_t batch_idx, const WindowPart& window) {
  if (!warms_up_ && !uses_recorder_stream_) return automatic_step(core_, batch, batch_idx, window);
  at::Tensor loss;
  recorder_->warm_up([&] { loss = automatic_step(core_, batch, batch_idx, window); });
  return loss;
}

at::Tensor StepGraph::repeat(const Batch& batch, int64_t batch_idx, const WindowPart& window) {
  inputs_.take(batch);
  if (window.last && !updates_on_host_) {
    const at::NoGradGuard no_grad;
    optimizer_.send_learning_rates();
  }
  if (window.last) write_flags();
  if (window.first) gradients_.hold();
  Part& part = parts_[Part::index(window)];
  core_.time_split.enter(StepPart::forward);  // the entire step, whose parts the host cannot distinguish
  std::string problem;
  const bool is_new = part.recording == nullptr;
  const std::vector<size_t> uses = is_new ? gradients_.uses() : std::vector<size_t>();
  if (is_new) {
    // A run that has replayed steps continues eagerly if it cannot record them again.
    std::optional<UndoScope> before;
    const bool may_give_up = recorded_ > 0 && !recorder_->runs_step() && !syncs_replays_across_ranks_;
    if (may_give_up) before.emplace(core_.module, UndoScope::Options{});
    const std::pair weights(core_.loss_weights, core_.window.weights);
    const at::Tensor unread_loss = core_.window.unread_loss;
    try {
      problem = record(part, batch_idx, window);
    } catch (const CannotCapture& error) {
      if (!before) throw;
      before->restore();
      std::tie(core_.loss_weights, core_.window.weights) = weights;
      core_.window.unread_loss = unread_loss;
      give_up(error.why());
      return run_eagerly(batch, batch_idx, window);
    }
  }
  const bool has_run = is_new && recorder_->runs_step();
  if (!has_run) {
    // Also if there is a problem: what was captured has not run, and what the step keeps gets its numbers.
    const std::string difference = replay(part, batch_idx, window);
    if (problem.empty()) problem = difference;
    inputs_.give_back(batch);
  }
  if (window.first) gradients_.take();
  if (is_new && problem.empty()) problem = prepare_replays(uses);
  window_is_uniform_ = window_is_uniform_ && !has_run && !part.is_checked;
  core_.window.unread_loss = part.unread_loss;
  take_notes(part, window);
  const at::Tensor loss = part.copy_of_loss();
  if (!problem.empty()) give_up(problem);
  return loss;
}

std::string StepGraph::record(Part& part, int64_t batch_idx, const WindowPart& window) {
  const BatchUses uses(inputs_);
  {
    const ProfilerScope profile(core_.profiler, "record_step");
    part.recording =
        capture_step(*recorder_, [this, &part, batch_idx, window] { run_recorded(part, batch_idx, window); });
  }
  if (!part.notes.refusal.empty()) return part.notes.refusal;
  if (part.recording == nullptr) return recorder_->refusal();
  ++recorded_;
  part.checks.record_in(core_.place.epoch);
  inputs_.note_changes();
  // The optimizer has made its state in this step, whose recording is not used again (settings).
  if (!updates_on_host_ && optimizer_.version() != settings_.optimizer_version) return "";
  if (!part.problem.empty()) return part.problem;
  if (uses.have_grown(known_results(part), part.recording.get())) return kept_batch_text("training_step");
  if (window.first || gradients_.are_in_place()) return "";
  return "a batch within a window trains a parameter that the window's first batch does not train";
}

// Called once a new recording has run: the memory that replays will read must not move.
std::string StepGraph::prepare_replays(const std::vector<size_t>& uses_before) {
  if (recorder_->runs_step()) {
    gradients_.note_references([this](const at::Tensor& gradient) {
      size_t count = 0;
      for (const Part& part : parts_) count += part.recording ? part.recording->references_to(gradient) : 0;
      return count;
    });
  } else {
    gradients_.note_references(uses_before.empty() ? gradients_.uses() : uses_before);
  }
  return problem_before_replay({.first = false});
}

std::vector<at::Tensor> StepGraph::known_results(const Part& part) const {
  std::vector<at::Tensor> known;
  part.add_tensors(known);
  for (const auto& tensor : reader_.tensors()) known.insert(known.end(), {tensor, tensor.grad()});
  return known;
}

// Writes this rank's flags to the memory from which recordings read them.
void StepGraph::write_flags() {
  if (!core_.has_peers() || core_.strategy.recorder().replays_together()) return;
  const auto numbers = core_.flags_to_send(/*sync=*/true).numbers();
  if (!own_flags_.defined()) own_flags_ = flags_tensor({});
  std::copy(numbers.begin(), numbers.end(), own_flags_.mutable_data_ptr<double>());
}

std::string StepGraph::replay(Part& part, int64_t batch_idx, const WindowPart& window) {
  ++part.replays;
  ++repeated_;
  part.is_checked =
      recorder_->runs_step() && part.checks.is_due(part.replays, core_.place.epoch, core_.place.total_batches,
                                                   /*in_windows=*/core_.counters.accumulate > 1);
  if (part.is_checked) return check(part, batch_idx, window);
  const ProfilerScope profile(core_.profiler, "recorded_step");
  core_.strategy.recorder().run_replay([&part] { part.recording->replay(); });
  return "";
}

std::string StepGraph::check(Part& part, int64_t batch_idx, const WindowPart& window) {
  const ProfilerScope profile(core_.profiler, "check_recorded_step");
  Part own;
  auto results = [&](const Part& of, const std::vector<at::Tensor>& gradients) {
    return of.compared(window.first ? gradients : std::vector<at::Tensor>());
  };
  const std::string problem = check_against(
      *part.recording,
      {.step = [&] { run_recorded(own, batch_idx, window); },
       .of_step = [&] { return results(own, gradients_.now()); },
       .of_replay = [&] { return results(part, gradients_.recorded()); }},
      own, [&] { return known_results(own); }, "training_step");
  if (problem.empty()) {
    if (window.first) gradients_.hold();
    // The step and the copies that it is compared with take memory that replays do not need. Not while steps are timed:
    // the next one fetches some of it again.
    if (!trial_) return_freed_memory();
    return "";
  }
  part.notes = std::move(own.notes);
  part.loss = own.loss;
  part.unread_loss = own.unread_loss;
  return "batch " + std::to_string(batch_idx) + " differs from the recorded step: " + problem;
}

void StepGraph::run_recorded(Part& part, int64_t batch_idx, const WindowPart& window) {
  part.notes = StepNotes{.updates_on_host = updates_on_host_, .step_runs = recorder_->runs_step()};
  if (window.last) part.notes.own_flags = own_flags_;
  RecordingScope scope(core_, part.notes);
  StepMemory memory(/*holds=*/!recorder_->runs_step());
  part.loss = automatic_step(core_, inputs_.lent(), batch_idx, window);
  if (!part.loss.defined()) {
    refuse_recording(core_, "training_step returned no loss for batch " + std::to_string(batch_idx) +
                                ", and whether a batch counts cannot be decided inside a recorded step");
  }
  scope.check_metrics();
  part.unread_loss = core_.window.unread_loss;
  part.problem = memory.problem(part.handed_out(), known_results(part), "training_step");
  if (window.first) gradients_.note_made(memory);
  for (auto& storage : memory.take_found()) {
    if (!inputs_.has(*storage) && std::find(found_.begin(), found_.end(), storage) == found_.end()) {
      found_.push_back(std::move(storage));
    }
  }
}

void StepGraph::take_notes(const Part& part, const WindowPart& window) {
  repeat_notes(core_, part.notes);
  if (!window.last) return;
  const at::Tensor& received_flags = part.notes.received_flags;
  if (updates_on_host_) {
    if (received_flags.defined())
      received_flags.is_cpu() ? core_.receive(flags_of(received_flags))
                              : core_.verdict->receive_on_device(received_flags);
    if (!core_.window.has_nonfinite_loss) update(core_, window);
    return;
  }
  if (received_flags.defined() && received_flags.is_cpu()) act_on_flags(received_flags);
  const at::Tensor& flags = part.notes.flags;
  count_window(core_, flags.defined() ? core_.verdict->decide_by_flags(flags, part.notes.loss, received_flags)
                                      : WindowResult::good);
}

// The flag about losses was already acted on.
void StepGraph::act_on_flags(const at::Tensor& received_flags) {
  RankFlags flags = flags_of(received_flags);
  (void)flags.take(RankFlag::nonfinite_loss);
  core_.receive(flags);
}

}  // namespace levin
