#include "levin/cli/commands/measure_memory.h"

#include <algorithm>

#include "levin/cli/config/resolve_run.h"
#include "levin/cli/config/run_parts.h"
#include "levin/core/error.h"
#include "levin/strategies/device/dp.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/loops/plan_recomputation.h"
#include "levin/trainer/plan/rank_plan.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

// As far as it is said; 0: all that there are.
int64_t devices_of(const TrainerOptions& given) {
  if (const auto* count = std::get_if<int64_t>(&given.devices)) return std::max<int64_t>(0, *count);
  if (const auto* list = std::get_if<std::vector<int64_t>>(&given.devices)) return static_cast<int64_t>(list->size());
  if (const auto* words = std::get_if<std::vector<std::string>>(&given.devices))
    return static_cast<int64_t>(words->size());
  return std::get<std::string>(given.devices) == "auto" ? 1 : 0;
}

struct Parallel {
  bool has_ranks = false;  // each does what one device does here
  int64_t shares = 1;      // of a batch, one for each device
};

// Throws ConfigError for strategies that the planner does not know.
Parallel parallel_of(TrainerOptions given) {
  const int64_t devices = devices_of(given);
  const bool several = devices != 1 || given.num_nodes > 1;
  if (given.strategy.empty() || given.strategy.is_name("auto")) return {several, 1};
  const auto strategy = given.strategy.object("TrainerOptions.strategy");
  if (dynamic_cast<const DataParallelStrategy*>(strategy.get()) != nullptr) {
    if (devices > 0) return {false, devices};
    throw ConfigError("trainer.devices: with strategy " + strategy->name() +
                      " the plan depends on their number. Use --trainer.devices=4, for example.");
  }
  if (const std::string why = why_not_planned(*strategy); !why.empty()) {
    throw ConfigError("trainer.strategy: " + why +
                      ", and the planner knows steps on one device only. Use --trainer.strategy=ddp or single_device "
                      "to see what one device would hold.");
  }
  return {several && strategy->is_distributed(), 1};
}

// The segments that the run file names, if it does.
std::optional<RecomputeOptions> own_segments(const RecomputeChoice& choice) {
  return choice.is_planned() ? std::nullopt : choice.options;
}

// One device, and what of the step's options changes its memory.
TrainerOptions one_step(const TrainerOptions& given) {
  TrainerOptions options;
  options.accelerator = given.accelerator;
  options.precision = given.precision;
  options.gradient_clip_val = given.gradient_clip_val;
  options.gradient_clip_algorithm = given.gradient_clip_algorithm;
  // How many batches add up matters by whether gradients stay from one to the next.
  const auto* batches = std::get_if<int64_t>(&given.accumulate_grad_batches);
  options.accumulate_grad_batches = batches != nullptr ? *batches : int64_t{2};
  options.micro_batch_size = given.micro_batch_size;
  options.channels_last = given.channels_last;
  options.float32_matmul_precision = given.float32_matmul_precision;
  options.devices = 1;
  options.limit_val_batches = int64_t{0};
  options.barebones = true;
  return options;
}

std::string last_file(const std::vector<ConfigSource>& sources) {
  std::string path;
  for (const ConfigSource& source : sources) {
    if (const auto* file = std::get_if<ConfigFile>(&source)) path = file->path;
  }
  return path;
}

}  // namespace

MeasuredMemory measure_memory(const std::vector<std::string>& run_words) {
  Problems problems;
  const FitWords words = resolve_fit_words(run_words, RunPlace::elsewhere, problems);
  problems.throw_if_any();
  const RunParts parts = make_parts(words.run.config);
  MeasuredMemory result;
  result.model = words.run.config.model->class_path;
  result.config = last_file(words.sources);
  const Parallel parallel = parallel_of(words.run.trainer);
  Trainer trainer(one_step(words.run.trainer));
  bool measured = false;
  const MeasureOnly only(
      [&](const MeasuredChain& chain, MemoryBudget free) {
        result.cost = chain.cost;
        result.smaller = chain.smaller;
        result.free = free;
        result.shares = {parallel.shares, chain.samples, parallel.shares > 1 ? chain.outputs : 0};
        result.with_segments = chain.with_segments;
        result.smaller_with_segments = chain.smaller_with_segments;
        if (chain.batches_seen > 1) {
          result.notes.push_back("Measured on the largest of the first " + std::to_string(chain.batches_seen) +
                                 " batches.");
        }
        if (words.run.trainer.micro_batch_size && chain.samples > chain.cost.batch * parallel.shares) {
          result.notes.push_back("micro_batch_size: a batch of " + std::to_string(chain.samples) +
                                 " samples goes through the model in parts, and the table is about one of them.");
        }
        result.device = trainer.device().str();
        measured = true;
      },
      {parallel.shares, own_segments(words.run.trainer.recompute)});
  fit(trainer, parts);
  for (Component<Callback> callback : words.run.trainer.callbacks) {
    result.cost.callbacks += callback.object("trainer.callbacks")->held_bytes(*parts.model);
  }
  result.smaller.callbacks = result.cost.callbacks;
  if (parallel.has_ranks) result.cost.gradients_stay = result.smaller.gradients_stay = true;  // in the ranks' buckets
  if (!measured) throw ConfigError("plan memory: the run has no training batch to measure. Give it data.");
  return result;
}

}  // namespace levin
