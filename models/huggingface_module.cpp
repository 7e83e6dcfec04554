#include "levin/models/huggingface_module.h"

#include <fnmatch.h>

#include <algorithm>

#include "levin/core/options/error.h"
#include "levin/models/huggingface/pretrained_model.h"
#include "levin/optim/adam.h"
#include "levin/optim/step_schedulers.h"
#include "levin/strategies/strategy.h"
#include "levin/trainer/param_groups.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/trainer.h"
#include "levin/trainer/weights_at_end.h"

namespace levin {

PretrainedConfig HuggingFaceModule::read_config() const {
  PretrainedConfig config = PretrainedConfig::read(settings_.path);
  if (settings_.dropout) huggingface::set_dropout(config, *settings_.dropout);
  return config;
}

void HuggingFaceModule::make_model(const PretrainedConfig& config, huggingface::Task task) {
  model_ = settings_.from_scratch
               ? huggingface::model_from_config(config, task)
               : huggingface::model_from_files(settings_.path, config, task, settings_.ignore_mismatched_sizes);
  model_->set_source(settings_.path);
  model_->train();
  register_module("model", model_);
  freeze_parameters();
}

void HuggingFaceModule::freeze_parameters() {
  for (const std::string& pattern : settings_.freeze) {
    bool matches = false;
    for (const auto& item : named_parameters()) {
      if (::fnmatch(pattern.c_str(), item.key().c_str(), 0) != 0) continue;
      matches = true;
      item.value().set_requires_grad(false);
    }
    if (matches) continue;
    const auto names = named_parameters().keys();
    throw ConfigError("freeze: no parameter matches \"" + pattern + "\". Names are as \"" +
                      (names.empty() ? "model" : names.front()) + "\".");
  }
}

OptimizerConfig HuggingFaceModule::configure_optimizers() {
  const int64_t total = trainer().estimated_stepping_batches();  // huge if open: lr stays after the warmup
  const auto factor = [warmup = settings_.warmup_steps, total](int64_t step) {
    if (step < warmup) return static_cast<double>(step) / static_cast<double>(warmup);
    if (total <= warmup) return 1.0;
    return std::max(0.0, static_cast<double>(total - step) / static_cast<double>(total - warmup));
  };
  return {
      AdamW(param_groups(*this, {}, /*no_decay=*/true), {.lr = settings_.lr, .weight_decay = settings_.weight_decay}),
      LambdaLR(factor),
      {.interval = Interval::step}};
}

// Adapters that could not be merged at the end end the run before it begins.
void HuggingFaceModule::on_fit_start() {
  if (!settings_.save_to.empty() && !trainer().plan().fast_dev_run) check_merge(*model_);
}

// A strategy that shards weights gathers each on rank 0, so all ranks come here.
void HuggingFaceModule::save_pretrained(const std::string& folder) const {
  if (model_ == nullptr) throw Error("save_pretrained " + folder + ": the model is not made yet.");
  write(folder, [&](const at::Tensor& parameter) {
    return has_trainer() ? full_parameter(trainer().strategy().sharding(), parameter) : parameter.detach();
  });
}

void HuggingFaceModule::write(const std::string& folder, const WholeTensor& whole) const {
  const auto tensors = merged_parameters(*model_, whole);
  if (has_trainer() && !trainer().is_global_zero()) return;
  model_->save_tensors(folder, tensors, {.max_shard_size = settings_.max_shard_size});
}

void HuggingFaceModule::on_fit_end() {
  if (settings_.save_to.empty() || trainer().plan().fast_dev_run) return;
  const WeightsAtEnd weights(trainer(), *this, settings_.save_weights);
  write(settings_.save_to, weights);
  print("wrote " + settings_.save_to + ", a folder for from_pretrained, with " + weights.text());
}

}  // namespace levin
