// The folder of a ModelCheckpoint: free names, and whether there is room for checkpoints.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace levin {

/// Returns the first version whose path `is_taken` refuses: 0 is <folder>/<stem>.ckpt, 1 is <folder>/<stem>-v1.ckpt.
[[nodiscard]] int64_t free_version(const std::string& folder, const std::string& stem,
                                   const std::function<bool(const std::string& path)>& is_taken);
[[nodiscard]] std::string versioned_path(const std::string& folder, const std::string& stem, int64_t version);

/// Whether both are the same folder, however links lead there. The folders need not exist.
[[nodiscard]] bool is_same_folder(const std::string& one, const std::string& other);
/// Whether both name the same file of the same folder. The files need not exist, and are not followed if they are
/// links.
[[nodiscard]] bool is_same_file(const std::string& one, const std::string& other);

/// The name in `folder` of a checkpoint whose `path` was saved ("last.ckpt"); "" if it is not in or below `folder`,
/// contains "." or ".." or control characters, or has another ending. Does not access the disk; is_inside checks links.
[[nodiscard]] std::string name_within(const std::string& path, const std::string& folder);

/// Why the folder (or the nearest that is there above it) has no room for `bytes` more: not writable, or full. "" if it
/// has. Creates nothing.
[[nodiscard]] std::string folder_problem(const std::string& folder, uint64_t bytes);

}  // namespace levin
