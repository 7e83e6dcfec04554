// Scales learning rates with the number of samples in an optimizer step. Internal.
#pragma once

namespace levin {

class OptimizerConfig;
struct Run;

/// Applies TrainerOptions::lr_scale and LearningRateFinder's result to the learning rates of all groups, before any
/// scheduler reads them. Throws ConfigError for a scheduler whose learning rates are in its own options.
void scale_learning_rates(Run& run, const OptimizerConfig& config);

}  // namespace levin
