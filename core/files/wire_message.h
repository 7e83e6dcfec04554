// A message in the wire format of protocol buffers, written field by field: TensorBoard's events, ONNX's models.
// LibTorch exports symbols of its own protobuf, which clash with the system's library, so that neither is used.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace levin {

/// A message that grows field by field, in the order of the calls.
class WireMessage {
 public:
  WireMessage& number(uint32_t field, uint64_t value);  // int32, int64, bool, enum: a varint
  WireMessage& real(uint32_t field, double value);      // double
  WireMessage& real32(uint32_t field, float value);     // float
  WireMessage& bytes(uint32_t field, std::string_view value);
  /// A string: readers refuse a whole file for a byte that is not UTF-8, so such bytes become U+FFFD.
  WireMessage& text(uint32_t field, std::string_view value);
  WireMessage& message(uint32_t field, const WireMessage& value) { return bytes(field, value.encoded()); }
  WireMessage& reals(uint32_t field, std::span<const double> values);  // packed doubles
  /// Adds the header of a field too large to copy, whose `size` bytes the caller writes after encoded().
  WireMessage& bytes_follow(uint32_t field, uint64_t size);

  [[nodiscard]] const std::string& encoded() const { return encoded_; }

 private:
  void varint(uint64_t value);
  void key(uint32_t field, uint32_t type) { varint(uint64_t{field} << 3 | type); }

  std::string encoded_ = "";
};

/// Returns `text` with each byte that is not UTF-8 replaced by U+FFFD.
[[nodiscard]] std::string valid_utf8(std::string_view text);

}  // namespace levin
