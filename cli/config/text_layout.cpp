#include "levin/cli/config/text_layout.h"

#include <algorithm>

#include "levin/core/options/utf8.h"

namespace levin {

namespace {

bool begins_character(char byte) {
  return (byte & 0xc0) != 0x80;
}

}  // namespace

size_t text_width(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

size_t bytes_of_columns(std::string_view text, size_t columns) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    if (begins_character(text[at]) && columns-- == 0) break;
  }
  return at;
}

std::string padded_to(const std::string& text, size_t columns) {
  return text + std::string(columns - std::min(columns, text_width(text)), ' ');
}

std::string shortened(const std::string& text, size_t columns, bool keep_end) {
  const size_t width = text_width(text);
  if (width <= columns) return text;
  if (keep_end) return "…" + text.substr(bytes_of_columns(text, width - columns + 1));
  return text.substr(0, bytes_of_columns(text, columns - 1)) + "…";
}

std::string one_line_text(const std::string& text) {
  std::string line = printable_text(text);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return line;
}

bool is_plain_argument(const std::string& text) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,@%+=";
  return !text.empty() && text.find_first_not_of(kPlain) == std::string::npos;
}

std::string shell_argument(const std::string& text) {
  if (is_plain_argument(text)) return text;
  std::string quoted = "'";
  for (const char letter : text) quoted += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return quoted + "'";
}

std::string shell_command(const std::vector<std::string>& arguments) {
  std::string text;
  for (const auto& argument : arguments) text += (text.empty() ? "" : " ") + shell_argument(argument);
  return text;
}

}  // namespace levin
