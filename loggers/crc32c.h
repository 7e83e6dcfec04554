// CRC-32C (Castagnoli), the checksum of TensorBoard's records.
#pragma once

#include <cstdint>
#include <string_view>

namespace levin {

[[nodiscard]] uint32_t crc32c(std::string_view bytes);

/// As records hold it: rotated and shifted, because the checksum of bytes that contain their own checksum is weak.
[[nodiscard]] uint32_t masked_crc32c(std::string_view bytes);

namespace detail {
/// For processors without the instruction; the same number.
[[nodiscard]] uint32_t crc32c_by_table(std::string_view bytes);
}  // namespace detail

}  // namespace levin
