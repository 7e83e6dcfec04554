// What the names of files say about them: which belong to checkpoints, and which one makes a sharded checkpoint
// complete.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>

namespace levin {

/// The commit record in the folder of a sharded checkpoint.
inline constexpr const char* kShardedRecordFile = "commit.safetensors";

/// Returns true for a checkpoint, and for each file of a sharded one.
[[nodiscard]] inline bool is_checkpoint_name(const std::string& name) {
  const std::filesystem::path path(name);
  return std::any_of(path.begin(), path.end(), [](const auto& part) { return part.string().ends_with(".ckpt"); });
}

/// Returns true for the commit record of a sharded checkpoint.
[[nodiscard]] inline bool is_commit_record(const std::string& name) {
  return is_checkpoint_name(name) && std::filesystem::path(name).filename() == kShardedRecordFile;
}

}  // namespace levin
