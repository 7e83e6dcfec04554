// Files written whole or not at all, and errors that name path and cause.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "levin/core/temporary_file.h"

namespace levin {

/// Writes the parts, one after another, to a new file in the folder of `path`, syncs it, renames it to `path` and
/// syncs the folder: afterwards `path` holds the old content or the new, never a mix.
/// Throws Error naming path, bytes and cause; the old file is then untouched and the new one removed. Returns the lock
/// on the new file, for writers of several files that belong together (remove_if_abandoned); otherwise drop it.
LockedFile write_file_durably(const std::string& path, std::span<const std::span<const std::byte>> parts);
LockedFile write_file_durably(const std::string& path, const std::string& content);

/// Syncs the file to the disk; does nothing if it does not exist. Best effort: never throws.
void sync_file(const std::string& path);

/// The whole file; throws Error naming the path and cause, or the limit if it holds more than `max_bytes`.
[[nodiscard]] std::string read_file(const std::string& path, uint64_t max_bytes = UINT64_MAX);

/// Creates the folder and its parents; throws Error naming path and cause.
void make_folder(const std::string& path);

/// The last system error as text: "No space left on device".
[[nodiscard]] std::string system_error_text(int error_number);

}  // namespace levin
