#include "levin/data/tokenizers/bpe_words.h"

#include <array>
#include <cstdint>

#include "levin/core/options/utf8.h"
#include "levin/data/tokenizers/unicode.h"

namespace levin::tokenizers {

namespace {

enum class Kind : uint8_t { letter, number, space, other };

Kind kind_of(char32_t c) {
  if (is_space(c)) return Kind::space;
  if (is_letter(c)) return Kind::letter;
  return is_numeric(c) ? Kind::number : Kind::other;
}

struct KindAndSize {
  Kind kind;
  size_t size;  // bytes
};

// Returns the kind and size of the first character of `text`, which is not empty. A byte that is not UTF-8 is of kind
// other.
KindAndSize first_character(std::string_view text) {
  const size_t size = utf8_length(text, 0);
  return size == 0 ? KindAndSize{Kind::other, 1} : KindAndSize{kind_of(character_at(text, 0).code), size};
}

// Returns the bytes of the leading characters of one kind; `last` receives the bytes of the last of them.
size_t run_length(std::string_view text, Kind kind, size_t* last = nullptr) {
  size_t length = 0;
  while (length < text.size()) {
    const KindAndSize character = first_character(text.substr(length));
    if (character.kind != kind) break;
    length += character.size;
    if (last != nullptr) *last = character.size;
  }
  return length;
}

bool is_line_end(char c) {
  return c == '\r' || c == '\n';
}

// Returns the leading spaces without the last one, which belongs to the word after it, unless it is the only one.
std::string_view first_spaces(std::string_view text) {
  size_t last = 0;
  const size_t spaces = run_length(text, Kind::space, &last);
  const bool is_at_end = spaces == text.size();
  return text.substr(0, is_at_end || spaces == last ? spaces : spaces - last);
}

// Returns the bytes of a leading contraction in lower or upper case, or 0. Unicode folds U+017F to s.
size_t contraction_length(std::string_view text) {
  if (!text.starts_with('\'')) return 0;
  const auto lower = [&](size_t i) { return i < text.size() ? static_cast<char>(text[i] | 0x20) : '\0'; };
  if (std::string_view("sdmt").find(lower(1)) != std::string_view::npos) return 2;
  const std::array<char, 2> two = {lower(1), lower(2)};
  for (const std::string_view contraction : {"ll", "ve", "re"}) {
    if (std::string_view(two.data(), two.size()) == contraction) return 3;
  }
  return text.substr(1).starts_with("\u017f") ? 3 : 0;
}

}  // namespace

std::string_view first_gpt2_word(std::string_view text) {
  for (const std::string_view contraction : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (text.starts_with(contraction)) return text.substr(0, contraction.size());
  }
  const size_t blank = text.starts_with(' ') ? 1 : 0;
  if (blank < text.size()) {
    const Kind kind = first_character(text.substr(blank)).kind;
    if (kind != Kind::space) return text.substr(0, blank + run_length(text.substr(blank), kind));
  }
  return first_spaces(text);
}

std::string_view first_cl100k_word(std::string_view text) {
  if (const size_t length = contraction_length(text)) return text.substr(0, length);
  const KindAndSize first = first_character(text);
  if (first.kind == Kind::letter) return text.substr(0, run_length(text, Kind::letter));
  if (first.kind == Kind::number) {
    size_t length = 0;
    for (int digits = 0; digits < 3 && length < text.size(); ++digits) {
      const KindAndSize next = first_character(text.substr(length));
      if (next.kind != Kind::number) break;
      length += next.size;
    }
    return text.substr(0, length);
  }
  if (!is_line_end(text[0])) {
    const size_t letters = run_length(text.substr(first.size), Kind::letter);
    if (letters > 0) return text.substr(0, first.size + letters);
  }
  const size_t blank = text.starts_with(' ') ? 1 : 0;
  const size_t others = run_length(text.substr(blank), Kind::other);
  if (others > 0) {
    size_t length = blank + others;
    while (length < text.size() && is_line_end(text[length])) ++length;
    return text.substr(0, length);
  }
  const std::string_view spaces = text.substr(0, run_length(text, Kind::space));
  if (spaces.size() == text.size()) return spaces;
  const size_t line_end = spaces.find_last_of("\r\n");
  return line_end == std::string_view::npos ? first_spaces(text) : spaces.substr(0, line_end + 1);
}

}  // namespace levin::tokenizers
