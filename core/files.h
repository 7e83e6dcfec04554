// Files written whole or not at all, and errors that name path and cause.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "levin/core/temporary_file.h"

namespace levin {

/// Writes the parts, one after another, to a new file in the folder of `path`, syncs it, renames it to `path` and
/// syncs the folder: afterwards `path` holds the old content or the new, never a mix. A link is replaced, not followed.
/// Throws Error naming path, bytes and cause; the old file is then untouched and the new one removed. Returns the lock
/// on the new file, for writers of several files that belong together (remove_if_abandoned); otherwise drop it.
LockedFile write_file_durably(const std::string& path, std::span<const std::span<const std::byte>> parts);
LockedFile write_file_durably(const std::string& path, const std::string& content);

/// Writes to a path that a user has named, as a shell's redirection does: a device or a FIFO gets the content as a
/// stream, and a link stays, because the file that it leads to is written. Otherwise as write_file_durably.
void write_output(const std::string& path, const std::string& content);

/// Where links that have this name lead to, whether or not a file is there; `path` itself if it is none.
[[nodiscard]] std::string followed_links(const std::string& path);

/// Throws Error if the path names a device, a FIFO or a socket: a file that is renamed to it would replace that.
void check_replaceable(const std::string& path);

/// Opens a regular file with open(2)'s flags. A link with this name is not followed, and nothing is waited for: what is
/// in a folder may be from others. Returns -1 if there is no file, else throws Error naming path and cause.
[[nodiscard]] int open_regular_file(const std::string& path, int flags);

/// The whole of a regular file, opened as above; nothing if there is none.
[[nodiscard]] std::optional<std::string> read_regular_file(const std::string& path, uint64_t max_bytes = UINT64_MAX);

/// Syncs the file to the disk; does nothing if it does not exist. Best effort: never throws.
void sync_file(const std::string& path);

/// The whole of a regular file; throws Error naming the path and cause, or the limit if it holds more than `max_bytes`.
[[nodiscard]] std::string read_file(const std::string& path, uint64_t max_bytes = UINT64_MAX);

/// The same for a path that a user has named: also of a FIFO, which is waited for, and of a device.
[[nodiscard]] std::string read_input(const std::string& path, uint64_t max_bytes = UINT64_MAX);

/// Creates the folder and its parents; throws Error naming path and cause.
void make_folder(const std::string& path);

/// The last system error as text: "No space left on device".
[[nodiscard]] std::string system_error_text(int error_number);

}  // namespace levin
