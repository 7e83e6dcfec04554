// A ConfigNode as JSON text and back, without loss: the text of every scalar and whether it was quoted are kept
// (docs/checkpoint_format.md has the table). Marks are not kept.
#pragma once

#include <string>

#include "levin/core/options/config_node.h"

namespace levin {

/// Throws CheckpointError if a string is not UTF-8, which JSON cannot hold, or the values exceed the limits below.
[[nodiscard]] std::string values_to_json(const ConfigNode& values);

/// Throws CheckpointError with the byte offset if `text` is not JSON, has a key twice in one object, or exceeds the
/// limits below.
[[nodiscard]] ConfigNode values_from_json(const std::string& text);

inline constexpr int kMaxJsonDepth = 64;           // lists and maps within one another
inline constexpr size_t kMaxJsonValues = 500'000;  // about 100 MB in memory

}  // namespace levin
