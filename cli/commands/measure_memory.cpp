#include "levin/cli/commands/measure_memory.h"

#include "levin/cli/config/resolve_run.h"
#include "levin/cli/config/run_parts.h"
#include "levin/core/error.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/loops/plan_recomputation.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

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
  Trainer trainer(one_step(words.run.trainer));
  bool measured = false;
  const MeasureOnly only([&](const MeasuredChain& chain, MemoryBudget free) {
    result.cost = chain.cost;
    result.smaller = chain.smaller;
    result.free = free;
    result.device = trainer.device().str();
    measured = true;
  });
  fit(trainer, parts);
  if (!measured) throw ConfigError("plan memory: the run has no training batch to measure. Give it data.");
  return result;
}

}  // namespace levin
