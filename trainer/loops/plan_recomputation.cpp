#include "levin/trainer/loops/plan_recomputation.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "levin/core/module_call.h"
#include "levin/core/options/error.h"
#include "levin/core/options/units.h"
#include "levin/core/process/console.h"
#include "levin/core/tensors.h"
#include "levin/recompute/chain_plan.h"
#include "levin/recompute/memory_meter.h"
#include "levin/recompute/recomputation.h"
#include "levin/recompute/sequential_calls.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/run/ranks.h"
#include "levin/trainer/run/run.h"
#include "levin/trainer/step/module_replicas.h"

namespace levin {

namespace {

std::string text_of(int64_t bytes) {
  return bytes_text(static_cast<uint64_t>(std::max<int64_t>(0, bytes)));
}

// The memory available to a step: memory that is in use between two steps is not free, but belongs to it. A tenth is
// left for fragmentation and for memory that is not in tensors.
MemoryBudget free_for_step(const Run& run, const ChainCost& cost) {
  const int64_t free = free_memory(run.strategy->placement().device());
  return {cost.parameters + cost.workspaces + free - free / 10, true};
}

std::string joined(const std::vector<std::string>& names, const char* between) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : between) + name;
  return text;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> names;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    names.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return names;
}

void report(const MeasuredChain& measured, const Segments& segments, MemoryBudget budget) {
  const MemoryPrediction plain = predict_memory(measured.cost, {});
  const MemoryPrediction planned = predict_memory(measured.cost, segments);
  const std::string of = text_of(budget.bytes) + (budget.is_free_memory ? " that are free" : "");
  const std::string by = measured.batches_seen == 1
                             ? std::string()
                             : ", by the largest of " + std::to_string(measured.batches_seen) + " batches";
  if (segments.empty()) {
    Console::instance().print("recompute: nothing is computed again, since a step needs " + text_of(plain.peak) +
                              " of " + of + by + ".");
    return;
  }
  Console::instance().print("recompute: " + joined(module_ranges(measured.cost, segments), ", ") + ": a step needs " +
                            text_of(planned.peak) + " of " + of + " (" + text_of(plain.peak) + " without), and takes " +
                            std::to_string(std::lround(100 * (planned.seconds / plain.seconds - 1))) + " % longer" +
                            by + ".");
}

void check_alone(const RecomputeOptions& options) {
  if (options.modules.empty() && options.checkpoints.empty() && options.keep == Keep::nothing && !options.offload)
    return;
  throw ConfigError(
      "TrainerOptions.recompute: budget chooses segments that keep nothing but their inputs. Drop it, or modules, "
      "checkpoints, keep and offload.");
}

// Recomputes segments by name, as if they were in the run file.
void recompute(Run& run, std::vector<std::string> modules) {
  if (modules.empty()) return;
  RecomputeOptions options;
  options.modules = std::move(modules);
  const RecomputeChoice asked = std::exchange(run.options.recompute, RecomputeChoice(options));
  run.entry.sequential_calls.reset();
  start_recomputation(run);
  run.entry.sequential_calls = std::make_shared<SequentialCalls>(*run.entry.module);
  run.options.recompute = asked;  // another fit of this trainer plans again
}

}  // namespace

std::optional<MeasuredFit> measure_fit(Run& run, int64_t replicas) {
  const auto measured = measure_chain(run, replicas);
  if (!measured) return std::nullopt;
  return MeasuredFit{*measured, free_for_step(run, measured->cost)};
}

void plan_recomputation(Run& run) {
  const RecomputeChoice& asked = run.options.recompute;
  const bool by_number = asked.options && asked.options->budget;
  if (by_number) check_alone(*asked.options);
  if (!asked.is_planned()) return;
  const auto fit = measure_fit(run, /*replicas=*/1);
  if (!fit) return;
  const MeasuredChain& measured = fit->chain;
  const MemoryBudget budget = by_number ? MemoryBudget{asked.options->budget->bytes} : fit->free_memory;
  const std::string names = on_rank_zero(run.strategy->ranks(), [&] {
    const auto segments = best_segments(measured.cost, budget.bytes);
    if (!segments)
      throw ConfigError("TrainerOptions.recompute.budget: " + cannot_meet(measured.cost, measured.smaller, budget));
    report(measured, *segments, budget);
    return joined(module_ranges(measured.cost, *segments), "\n");
  });
  recompute(run, split(names));
}

namespace {

// A stage of a pipeline runs on its own thread, with its own random numbers.
void check_pipeline(const Run& run, const RecomputeOptions& options) {
  if (run.strategy->gradients().micro_batches() < 2) return;
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
  if (run.plan.record_steps == RecordSteps::yes && !run.strategy->placement().device().is_cpu()) {
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
