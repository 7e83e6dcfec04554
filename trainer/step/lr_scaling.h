// What the number of samples in an optimizer step means for learning rates. Internal.
#pragma once

namespace levin {

class OptimizerConfig;
struct Run;

/// TrainerOptions::lr_scale and what LearningRateFinder found: learning rates of all groups, before any scheduler takes
/// them for its own. Throws ConfigError for a scheduler whose learning rates are in its own options.
void scale_learning_rates(Run& run, const OptimizerConfig& config);

}  // namespace levin
