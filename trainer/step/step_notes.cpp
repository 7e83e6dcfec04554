#include "levin/trainer/step/step_notes.h"

#include "levin/core/error.h"
#include "levin/trainer/run/run.h"

namespace levin {

std::string about_graphs(const std::string& text) {
  return "TrainerOptions.cuda_graph: " + text;
}

void note_logged(Run& run, std::string_view name, const at::Tensor& value, const LogOptions& options) {
  if (!run.plan.logging) return;
  if (!value.defined() || value.device() != run.strategy->device()) refuse_logged(run, name);
  run.fit.recording->logged.push_back({run.entry.place.hook, std::string(name), value.detach(), options});
}

void refuse_logged(const Run& run, std::string_view name) {
  throw Error(
      about_graphs(std::string(hook_name(run.entry.place.hook)) + " logs \"" + std::string(name) +
                   "\" from the host, which a recorded step does once and not at each batch; log a tensor that is on " +
                   run.strategy->device().str() + ", or log it in on_train_batch_end."));
}

}  // namespace levin
