#include "levin/data/tokenizers/byte_characters.h"

#include <openssl/evp.h>

#include <array>

#include "levin/core/options/utf8.h"
#include "levin/data/tokenizers/unicode.h"

namespace levin::tokenizers {

namespace {

constexpr size_t kByteCharacters = 0x144;  // above the last of them

struct ByteTables {
  std::array<char32_t, 256> character{};
  std::array<int16_t, kByteCharacters> byte{};
};

const ByteTables& byte_tables() {
  static const ByteTables tables = [] {
    ByteTables made;
    made.byte.fill(-1);
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool is_seen = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
      made.character[byte] = is_seen ? byte : next++;
      made.byte[made.character[byte]] = static_cast<int16_t>(byte);
    }
    return made;
  }();
  return tables;
}

}  // namespace

void append_byte_characters(std::string& text, std::string_view bytes) {
  for (const char byte : bytes) append(text, byte_tables().character[static_cast<unsigned char>(byte)]);
}

std::optional<std::string> bytes_of_characters(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i < text.size();) {
    if (utf8_length(text, i) == 0) return std::nullopt;
    const Character next = character_at(text, i);
    if (next.code >= kByteCharacters || byte_tables().byte[next.code] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte_tables().byte[next.code]));
    i += next.size;
  }
  return bytes;
}

std::optional<std::string> from_base64(std::string_view code) {
  if (code.empty() || code.size() % 4 != 0 || code.size() > size_t{1} << 28) return std::nullopt;
  std::string bytes(code.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<const unsigned char*>(code.data()), static_cast<int>(code.size()));
  if (size < 0) return std::nullopt;
  const size_t padding = code.ends_with("==") ? 2 : code.ends_with('=') ? 1 : 0;
  bytes.resize(static_cast<size_t>(size) - padding);
  return bytes;
}

}  // namespace levin::tokenizers
