#include "levin/cli/commands/measure_step.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "levin/cli/config/resolve_run.h"
#include "levin/cli/config/run_parts.h"
#include "levin/core/error.h"
#include "levin/profilers/time_split.h"
#include "levin/strategies/process/fsdp.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/run/ranks.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

constexpr int64_t kWarmUp = 5;
constexpr int64_t kMeasured = 50;

class BatchSize final : public Callback {
 public:
  void on_train_batch_end(Trainer&, LightningModule&, const at::Tensor&, const Batch& batch, int64_t) override {
    largest = std::max(largest, batch.size());
  }
  int64_t largest = 1;
};

// Options for one device of the requested kind, and nothing but the steps.
TrainerOptions bare(const TrainerOptions& given, int64_t steps) {
  TrainerOptions options;
  options.accelerator = given.accelerator;
  options.precision = given.precision;
  options.gradient_clip_val = given.gradient_clip_val;
  options.gradient_clip_algorithm = given.gradient_clip_algorithm;
  options.devices = 1;
  options.max_epochs = -1;
  options.max_steps = steps;
  options.limit_val_batches = int64_t{0};
  options.barebones = true;
  return options;
}

StepTimes time_steps(const TrainerOptions& given, const RunParts& parts, int64_t steps,
                     std::shared_ptr<Callback> watch) {
  TrainerOptions options = bare(given, steps);
  options.callbacks = {std::move(watch)};
  Trainer trainer(std::move(options));
  fit(trainer, parts);
  return trainer.time_split().times();
}

}  // namespace

MeasuredStep measure_step(const std::vector<std::string>& run_words) {
  Problems problems;
  const FitWords words = resolve_fit_words(run_words, RunPlace::elsewhere, problems);
  problems.throw_if_any();
  const RunParts parts = make_parts(words.run.config);
  const auto watch = std::make_shared<BatchSize>();
  (void)time_steps(words.run.trainer, parts, kWarmUp, watch);
  const StepTimes times = time_steps(words.run.trainer, parts, kMeasured, watch);
  const double each = 1e3 / static_cast<double>(std::max<int64_t>(1, times.steps));
  MeasuredStep seen;
  for (const auto& parameter : parts.model->parameters()) {
    if (!parameter.requires_grad()) continue;
    seen.parameters += parameter.numel();
    seen.bytes = parameter.element_size();
  }
  const auto unit_bytes = static_cast<int64_t>(FSDPOptions().unit_mb * 1024 * 1024);
  const auto units = unit_parameters(module_tensors(*parts.model).parameters, unit_bytes);
  seen.units = std::max<int64_t>(1, static_cast<int64_t>(units.size()));
  seen.batch_size = watch->largest;
  seen.forward_ms = times[StepPart::forward] * each;
  seen.backward_ms = times[StepPart::backward] * each;
  seen.optimizer_ms = times[StepPart::optimizer] * each;
  seen.other_ms = times.training() * 1e3 / static_cast<double>(std::max<int64_t>(1, times.steps)) - seen.forward_ms -
                  seen.backward_ms - seen.optimizer_ms;
  return seen;
}

}  // namespace levin
