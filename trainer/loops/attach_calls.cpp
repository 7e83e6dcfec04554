#include "levin/trainer/loops/attach_calls.h"

#include <torch/nn/module.h>

#include "levin/core/error.h"
#include "levin/core/module_call.h"
#include "levin/recompute/recomputation.h"
#include "levin/recompute/sequential_calls.h"
#include "levin/trainer/run/run.h"
#include "levin/trainer/step/module_replicas.h"

namespace levin {

namespace {

// A stage of a pipeline runs on its own thread, with its own random numbers.
void check_pipeline(const Run& run, const RecomputeOptions& options) {
  if (run.strategy->micro_batches() < 2) return;
  for (const NamedSegment& segment : named_segments(*run.entry.module, options)) {
    for (torch::nn::Module* module : segment.modules) {
      bool placed = segment.modules.size() > 1 && CallActions::of(module) != nullptr;
      for (const auto& inner : module->modules(/*include_self=*/false)) {
        placed = placed || CallActions::of(inner.get()) != nullptr;
      }
      if (!placed) continue;
      throw ConfigError(
          "TrainerOptions.recompute: " + segment.name +
          " holds parts that a pipeline places on devices, and these run at the same time. Name the parts "
          "themselves, or submodules of them.");
    }
  }
}

}  // namespace

void start_recomputation(Run& run) {
  const auto& options = run.options.recompute.options;
  if (!options || (options->modules.empty() && options->checkpoints.empty())) return;
  if (run.plan.record_steps == RecordSteps::yes && !run.strategy->device().is_cpu()) {
    throw ConfigError(
        "TrainerOptions.recompute: a captured step (record_steps: true) cannot go back to the random numbers of its "
        "forward pass. Set one of the two.");
  }
  check_pipeline(run, *options);
  run.entry.recomputation = std::make_shared<Recomputation>(*run.entry.module, *options);
  if (!run.entry.replicas) return;
  for (const auto& copy : run.entry.replicas->copies()) run.entry.recomputation->add_replica(*copy);
}

void start_sequential_calls(EntryPoint& entry) {
  entry.sequential_calls = std::make_shared<SequentialCalls>(*entry.module);
  if (!entry.replicas) return;
  for (const auto& copy : entry.replicas->copies()) entry.sequential_calls->add(*copy);
}

}  // namespace levin
