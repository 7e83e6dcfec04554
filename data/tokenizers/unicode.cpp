#include "levin/data/tokenizers/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "levin/core/options/utf8.h"
#include "levin/data/tokenizers/unicode_versions.h"

namespace levin::tokenizers {

namespace {

utf8proc_category_t category_of(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

// Returns how many bytes at `at`, which are not a character, a decoder replaces together: the longest truncated
// character.
size_t broken_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned lead = byte(at), second = byte(at + 1);
  if (lead < 0xe0 || lead > 0xf4 || (second & 0xc0) != 0x80) return 1;
  if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f)) return 1;
  if ((lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f)) return 1;
  return lead >= 0xf0 && (byte(at + 2) & 0xc0) == 0x80 ? 3 : 2;
}

// Below it no character changes in the form, nor does one join another.
char32_t first_changed(NormalForm form) {
  switch (form) {
    case NormalForm::nfc: return 0x300;
    case NormalForm::nfd: return 0xc0;
    default: return 0xa0;
  }
}

bool is_below(std::string_view text, char32_t limit) {
  for (size_t i = 0; i < text.size();) {
    const Character next = character_at(text, i);
    if (next.code >= limit) return false;
    i += next.size;
  }
  return true;
}

int utf8proc_options(NormalForm form) {
  switch (form) {
    case NormalForm::nfc: return UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    case NormalForm::nfd: return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    case NormalForm::nfkc: return UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
    case NormalForm::nfkd: return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
  }
  return 0;
}

// Marks side by side, by their classes. utf8proc's own way is quadratic in their number.
void order_marks(std::vector<utf8proc_int32_t>& codes) {
  const auto mark_class = [](utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; };
  const auto is_mark = [&](utf8proc_int32_t code) { return mark_class(code) != 0; };
  for (auto end = codes.begin(); end != codes.end();) {
    const auto begin = std::find_if(end, codes.end(), is_mark);
    end = std::find_if_not(begin, codes.end(), is_mark);
    std::stable_sort(begin, end, [&](auto a, auto b) { return mark_class(a) < mark_class(b); });
  }
}

void append_form(std::string_view text, NormalForm form, std::string& to) {
  if (is_below(text, first_changed(form))) {
    to += text;
    return;
  }
  const auto options = static_cast<utf8proc_option_t>(utf8proc_options(form));
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size() + 1);
  for (size_t i = 0; i < text.size();) {
    const Character next = character_at(text, i);
    i += next.size;
    std::array<utf8proc_int32_t, 32> parts{};  // a character becomes at most 18
    int unused = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(next.code), parts.data(),
                                               static_cast<utf8proc_ssize_t>(parts.size()), options, &unused);
    codes.insert(codes.end(), parts.data(), parts.data() + std::max<utf8proc_ssize_t>(count, 0));
  }
  order_marks(codes);
  codes.push_back(0);  // which the zero after the text is written to
  const auto size = utf8proc_reencode(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()) - 1, options);
  to.append(reinterpret_cast<const char*>(codes.data()), static_cast<size_t>(size));
}

}  // namespace

void append(std::string& text, char32_t code) {
  if (code < 0x80) {
    text.push_back(static_cast<char>(code));
    return;
  }
  const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  constexpr unsigned kLead[] = {0, 0xc0, 0xe0, 0xf0};
  text.push_back(static_cast<char>(kLead[more] | code >> (6 * more)));
  for (int i = more - 1; i >= 0; --i) text.push_back(static_cast<char>(0x80 | (code >> (6 * i) & 0x3f)));
}

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::string valid_utf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const size_t size = utf8_length(text, i);
    if (size > 0) {
      valid.append(text, i, size);
      i += size;
      continue;
    }
    valid += "\ufffd";
    i += std::min(broken_length(text, i), text.size() - i);
  }
  return valid;
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
         c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) return c > ' ' && c < 0x7f && !((c | 0x20) >= 'a' && (c | 0x20) <= 'z') && !(c >= '0' && c <= '9');
  const auto category = category_of(c);
  return (category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO) !=
         differs_in_package(c, Table::punctuation);
}

bool is_letter(char32_t c) {
  if (c < 0x80) return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
  const auto category = category_of(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool is_numeric(char32_t c) {
  const auto category = category_of(c);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool is_control(char32_t c) {
  const auto category = category_of(c);
  return (category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CO) !=
         differs_in_package(c, Table::format);
}

bool is_nonspacing_mark(char32_t c) {
  return c >= 0x300 && (category_of(c) == UTF8PROC_CATEGORY_MN) != differs_in_package(c, Table::nonspacing_mark);
}

bool is_mark(char32_t c) {
  const auto category = category_of(c);
  return (category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME) != differs_in_package(c, Table::mark);
}

bool is_word(char32_t c) {
  const auto category = category_of(c);
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) return true;  // L*, M*, Nd, Nl
  return category == UTF8PROC_CATEGORY_PC || c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) ||
         (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}

std::string to_form(std::string_view text, NormalForm form) {
  if (is_below(text, first_changed(form))) return std::string(text);
  // What the package has no tables for stays, and nothing is reordered or composed across it.
  std::string result;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const Character next = character_at(text, i);
    if (differs_in_package(next.code, Table::normal_form)) {
      append_form(text.substr(begin, i - begin), form, result);
      result += text.substr(i, next.size);
      begin = i + next.size;
    }
    i += next.size;
  }
  append_form(text.substr(begin), form, result);
  return result;
}

std::string to_lower(std::string_view text) {
  std::string lower;
  lower.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Character next = character_at(text, i);
    i += next.size;
    if (next.code < 0x80) {
      lower.push_back(static_cast<char>(next.code >= 'A' && next.code <= 'Z' ? next.code | 0x20 : next.code));
    } else if (next.code == 0x130) {
      lower += "i\u0307";  // the one character whose lower case is two
    } else {
      append(lower, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(next.code))));
    }
  }
  return lower;
}

size_t first_grapheme(std::string_view text) {
  utf8proc_int32_t state = 0;
  Character before = character_at(text, 0);
  size_t end = before.size;
  while (end < text.size()) {
    const Character next = character_at(text, end);
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(before.code),
                                         static_cast<utf8proc_int32_t>(next.code), &state) != 0) {
      break;
    }
    end += next.size;
    before = next;
  }
  return end;
}

}  // namespace levin::tokenizers
