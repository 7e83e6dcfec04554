// Reads event files as their format is documented, sharing no code with the library: checksums bit by bit, fields of
// any message.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace levin::test {

inline uint32_t slow_masked_crc(std::string_view bytes) {
  uint32_t crc = 0xffffffff;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78 : 0);
  }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8;
}

template <class T>
T raw(std::string_view bytes) {
  T value{};
  EXPECT_GE(bytes.size(), sizeof value);
  if (bytes.size() >= sizeof value) std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

/// The payloads of whole records; a torn one at the end is left out.
inline std::vector<std::string> records_of(std::string_view bytes) {
  std::vector<std::string> found;
  while (bytes.size() >= 16) {
    const auto length = raw<uint64_t>(bytes);
    EXPECT_EQ(raw<uint32_t>(bytes.substr(8)), slow_masked_crc(bytes.substr(0, 8)));
    if (bytes.size() < length + 16) break;
    const auto payload = bytes.substr(12, length);
    EXPECT_EQ(raw<uint32_t>(bytes.substr(12 + length)), slow_masked_crc(payload));
    found.emplace_back(payload);
    bytes.remove_prefix(length + 16);
  }
  return found;
}

/// A message: for each number of a field its values in order; numbers as their bytes (varints as 8).
using Fields = std::map<uint32_t, std::vector<std::string>>;

inline uint64_t take_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0; !bytes.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(bytes[0]);
    bytes.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  ADD_FAILURE() << "a varint is cut off";
  return value;
}

inline Fields fields_of(std::string_view bytes) {
  Fields fields;
  while (!bytes.empty()) {
    const uint64_t key = take_varint(bytes);
    size_t length = 8;
    std::string value;
    if ((key & 7) == 0) {
      const uint64_t number = take_varint(bytes);
      fields[static_cast<uint32_t>(key >> 3)].emplace_back(reinterpret_cast<const char*>(&number), 8);
      continue;
    }
    if ((key & 7) == 2) length = take_varint(bytes);
    if ((key & 7) == 5) length = 4;
    if (length > bytes.size()) {
      ADD_FAILURE() << "a field is cut off";
      return fields;
    }
    fields[static_cast<uint32_t>(key >> 3)].emplace_back(bytes.substr(0, length));
    bytes.remove_prefix(length);
  }
  return fields;
}

}  // namespace levin::test
