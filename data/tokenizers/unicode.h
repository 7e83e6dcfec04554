// Characters of UTF-8 text and what Unicode says about them, as Hugging Face's tokenizers package asks it. Tables are
// utf8proc's (Unicode 15); unicode_versions.cpp has where the package's own tables differ.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace levin::tokenizers {

struct Character {
  char32_t code;
  size_t size;  // bytes
};

/// Returns the character at byte `at` of valid UTF-8.
inline Character character_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xe0) return {(lead & 0x1f) << 6 | (byte(1) & 0x3f), 2};
  if (lead < 0xf0) return {(lead & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f), 4};
}

/// Bytes of the character that begins with `lead`, in valid UTF-8.
inline size_t size_of_character(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

void append(std::string& text, char32_t code);
[[nodiscard]] size_t count_characters(std::string_view text);
[[nodiscard]] bool is_ascii(std::string_view text);

/// `text` with U+FFFD for what is not UTF-8: one for each longest beginning of a character, as Python's
/// errors="replace" and Rust's from_utf8_lossy do.
[[nodiscard]] std::string valid_utf8(std::string_view text);

/// Returns whether the character has Unicode's property White_Space.
[[nodiscard]] bool is_space(char32_t code);
/// Returns whether the character is ASCII punctuation or an ASCII symbol, or in a category P*.
[[nodiscard]] bool is_punctuation(char32_t code);
/// Returns whether the character is a letter (categories L*).
[[nodiscard]] bool is_letter(char32_t code);
/// Returns whether the character is a number (categories N*).
[[nodiscard]] bool is_numeric(char32_t code);
/// Returns whether the category is Cc, Cf or Co.
[[nodiscard]] bool is_control(char32_t code);
/// Returns whether the category is Mn.
[[nodiscard]] bool is_nonspacing_mark(char32_t code);
/// Returns whether the category is M*.
[[nodiscard]] bool is_mark(char32_t code);
/// Returns whether \w matches the character: letters, marks, decimal numbers, connectors and joiners (Unicode Technical
/// Standard 18).
[[nodiscard]] bool is_word(char32_t code);

enum class NormalForm { nfc, nfd, nfkc, nfkd };
[[nodiscard]] std::string to_form(std::string_view text, NormalForm form);
/// Returns the lower case of each character by itself: a final sigma becomes σ.
[[nodiscard]] std::string to_lower(std::string_view text);

/// Returns the bytes of the first grapheme cluster (what readers count as one character) of non-empty text.
[[nodiscard]] size_t first_grapheme(std::string_view text);

}  // namespace levin::tokenizers
