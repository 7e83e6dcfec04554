#include "levin/trainer/step/step_notes.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/trainer/step/out_of_memory.h"
#include "levin/trainer/step/step_core.h"

namespace levin {

void StepNotes::add_results(std::vector<at::Tensor>& to) const {
  for (const Logged& value : logged) to.push_back(value.value);
  for (const auto& [name, value] : outputs) to.push_back(value);
  to.insert(to.end(), {flags, loss, own_flags, received_flags});
}

std::string about_recording(const std::string& text) {
  return "TrainerOptions.record_steps: " + text;
}

void refuse_recording(StepCore& core, const std::string& why) {
  StepNotes& notes = *core.recording;
  if (!notes.step_runs) throw Error(about_recording(why + "."));
  if (notes.refusal.empty()) notes.refusal = why;
}

void RecordingScope::log(std::string_view name, const at::Tensor& value, const LogOptions& options) {
  if (!value.defined() || value.device() != core_.strategy.placement().device()) {
    refuse_logged(name);
    return outer_.log(name, value, options);
  }
  // A copy, made at this place in the step: the tensor's current values are logged, and the step may change them later.
  core_.recording->logged.push_back({core_.running.place.hook, std::string(name), value.detach().clone(), options});
}

// Unless the step runs while it is recorded, refuse_logged throws.
void RecordingScope::log(std::string_view name, double value, const LogOptions& options) {
  refuse_logged(name);
  outer_.log(name, value, options);
}

void RecordingScope::log(std::string_view name, metrics::Metric& metric, const LogOptions& options) {
  refuse_recording(core_, std::string(hook_name(core_.running.place.hook)) + " logs the metric \"" + std::string(name) +
                              "\", which a recorded step would not do at each batch; update and log it in the hook "
                              "after the batch");
  outer_.log(name, metric, options);
}

// A tensor of its own, so that one that the step keeps is noticed.
void RecordingScope::publish(std::string_view name, const at::Tensor& value) {
  add_output(core_.recording->outputs, name, value);
}

void RecordingScope::set_loss_weight(const at::Tensor& weight) {
  refuse_recording(core_, "set_loss_weight was called, and the sum of a window's weights is read by the host");
  outer_.set_loss_weight(weight);
}

void RecordingScope::refuse_logged(std::string_view name) {
  const bool is_gpu = !core_.strategy.placement().device().is_cpu();
  refuse_recording(core_, std::string(hook_name(core_.running.place.hook)) + " logs \"" + std::string(name) +
                              "\" from the host, which a recorded step does once and not at each batch; log a tensor" +
                              (is_gpu ? " that is on " + core_.strategy.placement().device().str() : "") +
                              ", or log it in the hook after the batch");
}

CannotCapture::CannotCapture(std::string why) : Error(about_recording(why)), why_(std::move(why)) {}

std::unique_ptr<Recording> capture_step(StepRecorder& recorder, const std::function<void()>& step) {
  try {
    return recorder.record(step);
  } catch (const c10::Error& error) {
    if (recorder.runs_step() || is_out_of_memory(error)) throw;  // an error of the step
    const std::string text = error.what_without_backtrace();
    throw CannotCapture(
        "the step cannot be recorded, because something in it waits for the GPU (item(), cpu(), a branch on a tensor's "
        "value, or a copy from the host): " +
        text.substr(0, text.find('\n')));
  }
}

ReplayVote agree_on_replay(StepCore& core, const ReplayVote& own) {
  core.time_split.enter(StepPart::communication);
  const std::array<bool, 3> against = {!own.replays, !own.is_recorded, !own.continues};
  const auto flags = core.flags_to_send(/*sync=*/true).numbers();
  at::Tensor own_flags = at::empty({static_cast<int64_t>(flags.size() + against.size())}, at::kDouble);
  auto* numbers = own_flags.mutable_data_ptr<double>();
  std::copy(against.begin(), against.end(), std::copy(flags.begin(), flags.end(), numbers));

  const at::Tensor received_flags = core.strategy.ranks().reduce_in_step(own_flags, ReduceOp::max);
  const auto* most = received_flags.const_data_ptr<double>();
  std::array<double, kRankFlags> of_all = {};
  std::copy_n(most, of_all.size(), of_all.begin());
  core.receive(RankFlags::from(of_all));
  most += of_all.size();
  core.time_split.enter(StepPart::other);
  return {.replays = most[0] == 0, .is_recorded = most[1] == 0, .continues = most[2] == 0};
}

}  // namespace levin
