#include "levin/trainer/step/step_notes.h"

#include "levin/core/error.h"
#include "levin/trainer/run/run.h"

namespace levin {

void StepNotes::add_results(std::vector<at::Tensor>& to) const {
  for (const Logged& value : logged) to.push_back(value.value);
  for (const auto& [name, value] : outputs) to.push_back(value);
  to.insert(to.end(), {flags, loss, said, heard});
}

std::string about_recording(const std::string& text) {
  return "TrainerOptions.record_steps: " + text;
}

void refuse_recording(Run& run, const std::string& why) {
  StepNotes& notes = *run.fit.recording;
  if (!notes.step_runs) throw Error(about_recording(why + "."));
  if (notes.refusal.empty()) notes.refusal = why;
}

void note_logged(Run& run, std::string_view name, const at::Tensor& value, const LogOptions& options) {
  if (!run.plan.logging) return;
  if (!value.defined() || value.device() != run.strategy->device()) {
    refuse_logged(run, name);
    return run.log_metric(name, value, options);
  }
  // A copy, made at this place in the step: what the tensor holds now is logged, and the step may go on to change it.
  run.fit.recording->logged.push_back({run.entry.place.hook, std::string(name), value.detach().clone(), options});
}

void refuse_logged(Run& run, std::string_view name) {
  if (!run.plan.logging) return;
  const bool is_gpu = !run.strategy->device().is_cpu();
  refuse_recording(run, std::string(hook_name(run.entry.place.hook)) + " logs \"" + std::string(name) +
                            "\" from the host, which a recorded step does once and not at each batch; log a tensor" +
                            (is_gpu ? " that is on " + run.strategy->device().str() : "") +
                            ", or log it in on_train_batch_end");
}

}  // namespace levin
