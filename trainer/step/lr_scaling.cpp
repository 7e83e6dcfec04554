#include "levin/trainer/step/lr_scaling.h"

#include <cmath>
#include <string>

#include "levin/core/console.h"
#include "levin/core/short_number.h"
#include "levin/trainer/optimizer_config.h"
#include "levin/trainer/run/loader_set.h"
#include "levin/trainer/run/run.h"

namespace levin {

namespace {

// Note [What lr_scale scales by]
// Learning rates are written for one batch of the configured data.batch_size on one device. With effective_batch_size
// the factor is that size over the configured batch size, however many ranks and batches make it up: a run is the same
// on one device and on eight. Else only a change counts: the batch size that BatchSizeFinder has found over the
// configured one; accumulate_grad_batches and ranks, which the user wrote himself, are in both.
double size_ratio(const Run& run) {
  const Tuning& tuning = run.fit.tuning;
  const auto configured = static_cast<double>(tuning.configured_batch_size);
  if (configured == 0) return 1;
  if (run.fit.effective_batch_size > 0) return static_cast<double>(run.fit.effective_batch_size) / configured;
  return tuning.batch_size > 0 ? static_cast<double>(tuning.batch_size) / configured : 1;
}

// Goyal et al. 2017 (https://arxiv.org/abs/1706.02677): in proportion; Krizhevsky 2014
// (https://arxiv.org/abs/1404.5997): with the square root, which keeps the variance of the updates.
double factor_for(LrScale scale, double ratio) {
  if (scale == LrScale::linear) return ratio;
  return scale == LrScale::sqrt ? std::sqrt(ratio) : 1;
}

void say_scale(const Run& run, double ratio, double factor) {
  const Tuning& tuning = run.fit.tuning;
  const bool effective = run.fit.effective_batch_size > 0;
  const int64_t samples = effective ? run.fit.effective_batch_size : tuning.batch_size;
  Console::instance().print("lr_scale " + std::string(run.fit.lr_scale == LrScale::linear ? "linear" : "sqrt") + ": " +
                            (effective ? "an optimizer step takes " : "batches have ") + std::to_string(samples) +
                            " samples, " + short_number(ratio) + " times the configured batch size of " +
                            std::to_string(tuning.configured_batch_size) + ": learning rates are multiplied by " +
                            short_number(factor) + ".");
}

void refuse_own_rates(const Run& run, const OptimizerConfig& config) {
  for (const auto& scheduled : config.schedulers()) {
    const std::string name = scheduled.scheduler->name();
    if (name != "OneCycleLR" && name != "CyclicLR") continue;
    const bool scaled = run.fit.lr_scale != LrScale::none;
    throw ConfigError(
        (scaled ? "TrainerOptions.lr_scale: " : "LearningRateFinder: ") + name +
        " takes its learning rates from its own options, and not from the optimizer's. Set them for the " +
        (scaled ? "batch size, and leave lr_scale at none." : "model, and drop the callback."));
  }
}

}  // namespace

void scale_learning_rates(Run& run, const OptimizerConfig& config) {
  if (run.fit.lr_scale != LrScale::none && !run.fit.train.loaded) load_train_loader(run);
  const double ratio = size_ratio(run);
  const double scale = factor_for(run.fit.lr_scale, ratio);
  const double factor = scale * run.fit.tuning.lr_factor;
  if (factor == 1) return;
  refuse_own_rates(run, config);
  if (scale != 1) say_scale(run, ratio, scale);
  for (const auto& optimizer : config.optimizers()) {
    for (auto& group : optimizer->groups()) group.lr *= factor;
  }
}

}  // namespace levin
