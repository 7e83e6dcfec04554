// The folder of a ModelCheckpoint: free names, and whether it can hold what will be written.
#pragma once

#include <cstdint>
#include <string>

namespace levin {

/// <folder>/<stem>.ckpt, or with -v1, -v2, … the first name that is free. `own`: a name that counts as free, because
/// the file gives way anyhow; "" for none.
[[nodiscard]] int64_t free_version(const std::string& folder, const std::string& stem, const std::string& own);
[[nodiscard]] std::string versioned_path(const std::string& folder, const std::string& stem, int64_t version);

/// What a saved `path` can only mean: the name of a checkpoint in `folder` or below it ("last.ckpt"). "" if it means
/// none: a path that begins otherwise, "." or ".." or control characters in it, another ending. Does not look at the
/// disk, so links on the way are is_inside's to judge.
[[nodiscard]] std::string name_within(const std::string& path, const std::string& folder);

/// Why the folder (or the nearest that is there above it) cannot take `bytes` more: not writable, or full. "" if it
/// can. Creates nothing.
[[nodiscard]] std::string folder_problem(const std::string& folder, uint64_t bytes);

}  // namespace levin
