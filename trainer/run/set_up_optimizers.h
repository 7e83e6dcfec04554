// Sets up the run's optimizers and schedulers from the result of configure_optimizers.
#pragma once

#include "levin/trainer/run/run.h"

namespace levin {

class OptimizerConfig;
struct Run;

/// Calls configure_optimizers and gives the result to the fit. Throws ConfigError, naming option and value, if the
/// result is not possible with the plan.
void set_up_optimizers(Run& run);

/// Makes the fit's engine with these optimizers, and attaches their schedulers. Throws ConfigError for an optimizer
/// that needs whole weights, which the strategy shards.
void use_optimizers(Run& run, const OptimizerConfig& config);

// Scales learning rates with the number of samples in an optimizer step.

/// Applies TrainerOptions::lr_scale and LearningRateFinder's result to the learning rates of all groups, before any
/// scheduler reads them. Throws ConfigError for a scheduler whose learning rates are in its own options.
void scale_learning_rates(Run& run, const OptimizerConfig& config);

}  // namespace levin
