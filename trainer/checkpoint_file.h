// A checkpoint on disk: one safetensors file with the values as JSON in its metadata and a checksum per tensor. Any
// safetensors reader can open it; loading runs no code and allocates no more than the file holds.
#pragma once

#include <string>

#include "levin/core/state.h"

namespace levin {

/// Writes whole or not at all, durably. Throws CheckpointError naming path, bytes and cause; an old file stays then.
void write_checkpoint(const std::string& path, const State& state);

/// Throws CheckpointError naming the path and what is wrong with it: missing, cut short, damaged (which tensor), not a
/// checkpoint.
[[nodiscard]] State read_checkpoint(const std::string& path);

/// The values alone: reads and checks the header, not the tensors' data. Throws as read_checkpoint.
[[nodiscard]] ConfigNode read_checkpoint_values(const std::string& path);

}  // namespace levin
