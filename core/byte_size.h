// Amounts of memory as people write them: "11GiB", "512 MiB", "1.5GB", or a plain number of bytes.
#pragma once

#include <cstdint>
#include <string>

#include "levin/core/value.h"

namespace levin {

struct ByteSize {
  int64_t bytes = 0;
  friend bool operator==(ByteSize, ByteSize) = default;
};

/// Reads a number with B, KiB, MiB, GiB, TiB (powers of 1024), kB, MB, GB or TB (powers of 1000); without a unit:
/// bytes. Throws Error showing the text if it is not an amount.
[[nodiscard]] ByteSize parse_byte_size(const std::string& text);

template <>
struct ValueType<ByteSize> {
  static std::string name() { return "amount of memory"; }
  static bool read(const ConfigNode& node, ByteSize& value, const std::string& path, Problems& problems);
  static ConfigNode write(ByteSize value);  // reads back exactly: "11GiB", or the number of bytes
};

}  // namespace levin
