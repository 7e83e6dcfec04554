// Whether a config.json can belong to the weights beside it: asked before a model is made of its numbers.
#pragma once

#include <string>

#include "levin/models/huggingface/pretrained_config.h"

namespace levin {
class WeightsSource;
}

namespace levin::huggingface {

/// Throws ConfigError if the config has more layers than any model.
void check_layers(const PretrainedConfig& config);

/// Throws ConfigError with all that is wrong if the config has many layers, and more than the headers of the files of
/// `folder`, which are `source`, have tensors, or, unless `ignore_mismatched_sizes`, a large size that is above every
/// dimension of theirs.
void check_sizes(const PretrainedConfig& config, const WeightsSource& source, const std::string& folder,
                 bool ignore_mismatched_sizes);

}  // namespace levin::huggingface
