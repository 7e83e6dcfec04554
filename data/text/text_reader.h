// The bytes of a text file, however compressed: plain, gzip, compress (.Z), or the file of Debian's package
// bible-kjv-text, which is a table of windows in front of compress data.
#pragma once

#include <cstdint>
#include <string>

namespace levin {

/// The text in the file. Throws DataError naming file, byte, what was expected and what was seen; a compressed file of
/// more than `max_bytes` is rejected.
[[nodiscard]] std::string read_text(const std::string& path, uint64_t max_bytes = uint64_t{4} << 30);

/// The King James Bible, 4.4 MB of text in 31103 lines: datasets/bible.data below LEVIN_HOME if it is there, else where
/// Debian's package bible-kjv-text keeps it.
[[nodiscard]] const std::string& kjv_path();

}  // namespace levin
