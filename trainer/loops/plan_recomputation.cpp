#include "levin/trainer/loops/plan_recomputation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "levin/core/console.h"
#include "levin/core/tensor_text.h"
#include "levin/recompute/chain_plan.h"
#include "levin/recompute/memory_meter.h"
#include "levin/recompute/recomputation.h"
#include "levin/recompute/sequential_calls.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/loops/attach_calls.h"
#include "levin/trainer/run/ranks.h"

namespace levin {

namespace {

thread_local MeasureOnly::Take measure_only;
thread_local int64_t measured_replicas = 1;

std::string text_of(int64_t bytes) {
  return bytes_text(static_cast<uint64_t>(std::max<int64_t>(0, bytes)));
}

// The memory available to a step: memory that is in use between two steps is not free, but belongs to it. A tenth is
// left for fragmentation and for memory that is not in tensors.
MemoryBudget free_for_step(const Run& run, const ChainCost& cost) {
  const int64_t free = free_memory(run.strategy->device());
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

MeasureOnly::MeasureOnly(Take take, int64_t replicas) {
  measure_only = std::move(take);
  measured_replicas = replicas;
}

MeasureOnly::~MeasureOnly() {
  measure_only = nullptr;
  measured_replicas = 1;
}

bool plan_recomputation(Run& run) {
  const RecomputeChoice& asked = run.options.recompute;
  const bool by_number = asked.options && asked.options->budget;
  if (by_number) check_alone(*asked.options);
  if (!measure_only && !asked.is_planned()) return true;
  const auto measured = measure_chain(run, measured_replicas);
  if (!measured) return measure_only == nullptr;
  const MemoryBudget free = free_for_step(run, measured->cost);
  if (measure_only) {
    measure_only(*measured, free);
    return false;
  }
  const MemoryBudget budget = by_number ? MemoryBudget{asked.options->budget->bytes} : free;
  const std::string names = on_rank_zero(*run.strategy, [&] {
    const auto segments = best_segments(measured->cost, budget.bytes);
    if (!segments)
      throw ConfigError("TrainerOptions.recompute.budget: " + cannot_meet(measured->cost, measured->smaller, budget));
    report(*measured, *segments, budget);
    return joined(module_ranges(measured->cost, *segments), "\n");
  });
  recompute(run, split(names));
  return true;
}

}  // namespace levin
