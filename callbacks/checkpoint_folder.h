// The folder of a ModelCheckpoint: free names, and whether there is room for checkpoints.
#pragma once

#include <cstdint>
#include <string>

namespace levin {

/// <folder>/<stem>.ckpt, or with -v1, -v2, … the first name that is free. `own`: a name that counts as free, because
/// its file will be replaced; "" for none.
[[nodiscard]] int64_t free_version(const std::string& folder, const std::string& stem, const std::string& own);
[[nodiscard]] std::string versioned_path(const std::string& folder, const std::string& stem, int64_t version);

/// The name in `folder` of a checkpoint whose `path` was saved ("last.ckpt"); "" if it is not in or below `folder`,
/// contains "." or ".." or control characters, or has another ending. Does not access the disk; is_inside checks links.
[[nodiscard]] std::string name_within(const std::string& path, const std::string& folder);

/// Why the folder (or the nearest that is there above it) has no room for `bytes` more: not writable, or full. "" if it
/// has. Creates nothing.
[[nodiscard]] std::string folder_problem(const std::string& folder, uint64_t bytes);

}  // namespace levin
