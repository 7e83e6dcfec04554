#include "levin/cli/commands/measure_memory.h"

#include <set>

#include "levin/cli/config/resolve_run.h"
#include "levin/cli/config/run_parts.h"
#include "levin/core/error.h"
#include "levin/recompute/segment_names.h"
#include "levin/strategies/strategy.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/loops/plan_recomputation.h"
#include "levin/trainer/plan/rank_plan.h"
#include "levin/trainer/plan/resolve_plan.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

// Whether the run has several ranks, each of which does the same as the one device measured here. Throws ConfigError
// for strategies that the planner does not know.
bool has_ranks(TrainerOptions given) {
  const auto* devices = std::get_if<int64_t>(&given.devices);
  const auto* list = std::get_if<std::vector<int64_t>>(&given.devices);
  const bool several =
      (devices != nullptr && *devices != 1) || (list != nullptr && list->size() > 1) || given.num_nodes > 1;
  if (given.strategy.empty() || given.strategy.is_name("auto")) return several;
  const auto strategy = given.strategy.object("TrainerOptions.strategy");
  if (!strategy->replica_slots().empty()) return false;  // dp: see replica_devices
  if (const std::string why = why_not_planned(*strategy); !why.empty()) {
    throw ConfigError("trainer.strategy: " + why +
                      ", and the planner knows steps on one device only. Use --trainer.strategy=ddp or single_device "
                      "to see what one device would hold.");
  }
  return several && strategy->is_distributed();
}

// The devices of this process that compute each batch together, by strategies dp and dp_balanced; else none.
std::vector<std::string> replica_devices(const TrainerOptions& given) {
  if (given.strategy.empty() || given.strategy.is_name("auto")) return {};
  Component<Strategy> choice = given.strategy;
  if (choice.object("TrainerOptions.strategy")->replica_slots().empty()) return {};
  TrainerOptions plain = given;
  plain.recompute = {};  // its budget is refused with several devices
  std::vector<std::string> devices;
  for (const DeviceSlot& slot : resolve_plan(plain).slots) devices.push_back(slot.text());
  return devices;
}

// Options for one device, with those that affect the memory of a step.
TrainerOptions one_step(const TrainerOptions& given) {
  TrainerOptions options;
  options.accelerator = given.accelerator;
  options.precision = given.precision;
  options.gradient_clip_val = given.gradient_clip_val;
  options.gradient_clip_algorithm = given.gradient_clip_algorithm;
  // The number of accumulated batches matters only in that gradients persist between them.
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

// What the run computes again by itself, block by block. Adds a note where the planner cannot say what that saves.
void add_own_segments(const RecomputeChoice& recompute, const LightningModule& module, MeasuredMemory& result) {
  if (!recompute.options || recompute.is_planned()) return;
  if (recompute.options->keep != Keep::nothing || recompute.options->offload) {
    result.notes.push_back(
        "The run's recompute keeps more than inputs, or keeps them elsewhere (keep, offload), which is not planned: "
        "the table has no line for it.");
    return;
  }
  std::set<std::string> blocks;
  for (const BlockCost& block : result.cost.blocks) blocks.insert(block.name);
  for (const NamedSegment& segment : named_segments(module, *recompute.options)) {
    std::vector<std::string> names;
    for (const torch::nn::Module* part : segment.modules) {
      for (const auto& item : module.named_modules()) {
        if (item.value().get() == part) names.push_back(item.key());
      }
    }
    const bool known = !names.empty() && blocks.contains(names.front()) && blocks.contains(names.back());
    if (known) {
      result.own_segments.push_back(names);
    } else {
      result.notes.push_back("The run's recompute names " + segment.name +
                             ", which is not among the blocks that were measured: its line is without it.");
    }
  }
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
  const bool ranks = has_ranks(words.run.trainer);
  result.devices = replica_devices(words.run.trainer);
  const auto replicas = std::max<int64_t>(1, static_cast<int64_t>(result.devices.size()));
  if (replicas > 1) {
    Component<Strategy> strategy = words.run.trainer.strategy;
    result.strategy = strategy.object("trainer.strategy")->name();
  }
  Trainer trainer(one_step(words.run.trainer));
  bool measured = false;
  const MeasureOnly only(
      [&](const MeasuredChain& chain, MemoryBudget free) {
        result.cost = chain.cost;
        result.smaller = chain.smaller;
        result.free = free;
        result.samples = chain.samples;
        if (chain.batches_seen > 1) {
          result.notes.push_back("Measured on the largest of the first " + std::to_string(chain.batches_seen) +
                                 " batches.");
        }
        if (replicas > 1) {
          result.notes.push_back("The table is about the first device, which computes " +
                                 std::to_string(chain.cost.batch) + " of a batch's " + std::to_string(chain.samples) +
                                 " samples.");
        } else if (chain.samples > chain.cost.batch) {
          result.notes.push_back("micro_batch_size: a batch of " + std::to_string(chain.samples) +
                                 " samples goes through the model in parts, and the table is about one of them.");
        }
        result.device = trainer.device().str();
        measured = true;
      },
      replicas);
  fit(trainer, parts);
  for (Component<Callback> callback : words.run.trainer.callbacks) {
    result.cost.callbacks += callback.object("trainer.callbacks")->held_bytes(*parts.model);
  }
  result.smaller.callbacks = result.cost.callbacks;
  if (ranks) result.cost.gradients_stay = result.smaller.gradients_stay = true;  // in the ranks' buckets
  if (!measured) throw ConfigError("plan memory: the run has no training batch to measure. Give it data.");
  add_own_segments(words.run.trainer.recompute, *parts.model, result);
  return result;
}

}  // namespace levin
