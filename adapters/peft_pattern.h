// The regular expressions of rank_pattern and alpha_pattern in an adapter_config.json. Internal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace levin {

/// The steps that all expressions of one file may take together, one or two seconds' work: enough for a rank and a
/// lora_alpha of each of about a thousand layers.
inline constexpr int64_t kMostPatternSteps = int64_t{1} << 26;

/// The layers that PEFT finds with a key of these patterns: the expression matches the whole name or, after a dot, its
/// end. Takes its steps from `steps_left`. Throws CheckpointError, a sentence without its end, for a text that is no
/// expression, for one that needs more backtracking than any name is worth, and where no steps are left.
[[nodiscard]] std::vector<std::string> matching_layers(const std::string& expression,
                                                       const std::vector<std::string>& layers, int64_t& steps_left);

}  // namespace levin
