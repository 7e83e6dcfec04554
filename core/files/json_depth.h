// JSON from files and servers that may be hostile. nlohmann-json parses any depth without recursion, but copies,
// compares and writes a tree by recursion: a megabyte of brackets would exhaust the stack and end the process.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace levin {

inline constexpr size_t kMaxJsonNesting = 100;  // lists and objects within each other

/// Returns true if more than `most` lists and objects are open at once. The input need not be JSON.
[[nodiscard]] inline bool json_nests_deeper(std::string_view text, size_t most = kMaxJsonNesting) {
  size_t open = 0;
  bool is_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      is_string = !is_string;
    } else if (is_string) {
      at += c == '\\' ? 1 : 0;
    } else if (c == '[' || c == '{') {
      if (++open > most) return true;
    } else if (open > 0 && (c == ']' || c == '}')) {
      --open;
    }
  }
  return false;
}

/// Parses JSON. The result is discarded (is_discarded()) if `text` is not JSON or nests deeper than kMaxJsonNesting.
template <class Json = nlohmann::json>
[[nodiscard]] Json parse_json(std::string_view text) {
  if (json_nests_deeper(text)) return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace levin
