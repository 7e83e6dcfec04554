#include "levin/core/files/wire_message.h"

#include <algorithm>
#include <bit>

#include "levin/core/options/utf8.h"

namespace levin {

static_assert(std::endian::native == std::endian::little, "fixed numbers are copied as they lie in memory");

namespace {

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<signed char>(c) >= 0; });
}

}  // namespace

std::string valid_utf8(std::string_view text) {
  if (is_ascii(text)) return std::string(text);
  std::string valid;
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text, at);
    valid += length == 0 ? std::string_view("\xef\xbf\xbd") : text.substr(at, length);
    at += std::max<size_t>(length, 1);
  }
  return valid;
}

void WireMessage::varint(uint64_t value) {
  for (; value >= 0x80; value >>= 7) encoded_ += static_cast<char>(value | 0x80);
  encoded_ += static_cast<char>(value);
}

WireMessage& WireMessage::number(uint32_t field, uint64_t value) {
  key(field, kVarint);
  varint(value);
  return *this;
}

WireMessage& WireMessage::real(uint32_t field, double value) {
  key(field, kFixed64);
  encoded_.append(reinterpret_cast<const char*>(&value), sizeof value);
  return *this;
}

WireMessage& WireMessage::real32(uint32_t field, float value) {
  key(field, kFixed32);
  encoded_.append(reinterpret_cast<const char*>(&value), sizeof value);
  return *this;
}

WireMessage& WireMessage::bytes_follow(uint32_t field, uint64_t size) {
  key(field, kLengthDelimited);
  varint(size);
  return *this;
}

WireMessage& WireMessage::bytes(uint32_t field, std::string_view value) {
  bytes_follow(field, value.size());
  encoded_ += value;
  return *this;
}

WireMessage& WireMessage::text(uint32_t field, std::string_view value) {
  return is_ascii(value) ? bytes(field, value) : bytes(field, valid_utf8(value));
}

WireMessage& WireMessage::reals(uint32_t field, std::span<const double> values) {
  return bytes(field, {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
}

}  // namespace levin
