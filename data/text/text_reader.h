// Reads text files: plain, gzip (RFC 1952) or compress(1) (.Z).
#pragma once

#include <cstdint>
#include <string>

namespace levin {

inline constexpr uint64_t kMaxTextBytes = uint64_t{4} << 30;

/// Returns the text in the file. Throws DataError naming file, byte, what was expected and what was found, and if the
/// text has more than `max_bytes`.
[[nodiscard]] std::string read_text(const std::string& path, uint64_t max_bytes = kMaxTextBytes);

/// Same as read_text() for a file's `bytes` in memory; `path` is for messages.
[[nodiscard]] std::string unpack_text(const std::string& path, std::string bytes, uint64_t max_bytes = kMaxTextBytes);

}  // namespace levin
