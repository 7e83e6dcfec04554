#include "levin/core/options/error.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "levin/core/options/utf8.h"

namespace levin {

namespace {

std::string lines(const std::vector<std::string>& problems) {
  std::string text;
  for (const auto& problem : problems) text += (text.empty() ? "" : "\n") + problem;
  return text;
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

// Edit distance with swaps of neighbours counted once (Damerau-Levenshtein, restricted form), so that
// "ddp" and "dpp" are one apart.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

// With their bytes to decide between names that differ only by case.
bool comes_before(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  const auto [in_a, in_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end(),
                                          [&](char left, char right) { return lower(left) == lower(right); });
  if (in_a == a.end() && in_b == b.end()) return a < b;
  if (in_a == a.end() || in_b == b.end()) return in_a == a.end();
  return lower(*in_a) < lower(*in_b);
}

}  // namespace

ConfigError::ConfigError(std::vector<std::string> problems) : Error(lines(problems)), problems_(std::move(problems)) {}

ConfigError::ConfigError(std::string problem) : Error(problem), problems_{std::move(problem)} {}

Interrupted::Interrupted(int signal_number)
    : Error("interrupted by " + stop_signal_name(signal_number)), signal_number_(signal_number) {}

std::string join(const std::vector<std::string>& names, size_t most) {
  if (names.empty()) return "none";
  std::string text = names[0];
  for (size_t k = 1; k < std::min(names.size(), most); ++k) text += ", " + names[k];
  return names.size() > most ? text + " and " + std::to_string(names.size() - most) + " more" : text;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::string cut_text(const std::string& text, size_t most_bytes) {
  size_t end = std::min(text.size(), most_bytes);
  while (end < text.size() && end > 0 && is_continuation(text[end])) --end;  // not within a character
  const std::string_view kept(text.data(), end);
  std::string shown;
  for (size_t at = 0; at < kept.size();) {
    const size_t length = std::max<size_t>(1, utf8_length(kept, at));
    const std::string escape = kept[at] == '\n' ? "\\n" : terminal_escape(kept, at);
    shown += escape.empty() ? kept.substr(at, length) : escape;
    at += length;
  }
  return end < text.size() ? shown + "… (" + std::to_string(text.size()) + " bytes)" : shown;
}

std::string nearest_name(const std::string& name, const std::vector<std::string>& known) {
  const std::string wanted = lower(name);
  if (wanted.size() < 2) return "";  // otherwise every short name would be near
  size_t best_distance = std::max<size_t>(1, wanted.size() / 3);
  std::string best;
  for (const auto& candidate : known) {
    const std::string other = lower(candidate);
    const size_t lengths_apart = std::max(wanted.size(), other.size()) - std::min(wanted.size(), other.size());
    // The distance is at least the difference in length; a key of a megabyte must not cost a table of gigabytes.
    size_t distance = lengths_apart > best_distance ? lengths_apart : edit_distance(wanted, other);
    // "accuracy" for "val_accuracy", "epochs" for "max_epochs" and "csv" for CSVLogger are far apart in edits but
    // plainly meant.
    const auto is_part = [&] { return other.starts_with(wanted) || other.find("_" + wanted) != std::string::npos; };
    if (distance > best_distance && wanted.size() >= 3 && other.size() > wanted.size() && is_part()) {
      distance = best_distance;
    }
    if (distance < best_distance || (distance == best_distance && best.empty())) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(const std::string& name, const std::vector<std::string>& known) {
  const std::string near = nearest_name(name, known);
  return near.empty() ? "" : " Did you mean \"" + near + "\"?";
}

std::string sorted_names(std::vector<std::string> names) {
  std::sort(names.begin(), names.end(), comes_before);
  return join(names);
}

std::string known_names(const std::string& name, const std::vector<std::string>& known) {
  return did_you_mean(name, known) + " Known: " + sorted_names(known) + ".";
}

std::string count_of(int64_t count, const std::string& one, const std::string& many) {
  return std::to_string(count) + " " + (count == 1 ? one : many.empty() ? one + "s" : many);
}

std::string formatted(const char* format, ...) {
  std::array<char, 512> text = {};
  std::va_list values;
  va_start(values, format);
  std::vsnprintf(text.data(), text.size(), format, values);
  va_end(values);
  return text.data();
}

std::string short_number(double value, int digits) {
  if (std::isnan(value)) return "nan";  // printf may write -nan
  return formatted("%.*g", digits, value);
}

std::string stop_signal_name(int signal_number) {
  if (signal_number == SIGINT) return "Ctrl-C";
  if (signal_number == SIGTERM) return "SIGTERM";
  if (signal_number == SIGHUP) return "SIGHUP";
  if (signal_number == SIGUSR1) return "SIGUSR1";
  return strsignal(signal_number);
}

}  // namespace levin
