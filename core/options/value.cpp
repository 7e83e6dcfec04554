#include "levin/core/options/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "levin/core/options/config_node.h"
#include "levin/core/options/error.h"

namespace levin {

namespace {

constexpr size_t kMaxPathBytes = 500;  // in a message

// A path as an override may write it: model.hidden for model.init_args.hidden, callbacks.0 for callbacks[0].
std::string short_path(const std::string& path) {
  std::string text = path;
  const std::string args = ".init_args.";
  for (size_t at = text.find(args); at != std::string::npos; at = text.find(args)) text.erase(at, args.size() - 1);
  std::string plain;
  for (const char c : text) {
    if (c != ']') plain += c == '[' ? '.' : c;
  }
  return plain;
}

// Whether the mark is an override of this very path, or appends the item there: "--trainer.max_epochs=x",
// "--trainer.callbacks+=x".
bool is_override_of(const Mark& mark, const std::string& path) {
  if (mark.line != 0 || !mark.source.starts_with("--")) return false;
  const size_t equals = mark.source.find('=');
  if (equals == std::string::npos) return false;
  std::string written = short_path(mark.source.substr(2, equals - 2));
  std::string meant = short_path(path);
  if (written.ends_with('+')) {
    written.pop_back();
    const size_t item = meant.rfind('.');
    if (path.ends_with(']') && item != std::string::npos) meant.resize(item);
  }
  return written == meant;
}

// "--trainer.max_epochs=" has an empty value, which does not mean null.
std::string got(const ConfigNode& node) {
  const std::string& written = node.mark.source;
  const bool is_empty_override = node.is_scalar() && node.text.empty() && written.ends_with('=');
  if (!is_empty_override) return node.shown();
  return std::string("an empty value") +
         (written.ends_with("+=") ? "" : ". If null is meant, write " + written + "null");
}

}  // namespace

void Problems::add(const Mark& mark, const std::string& path, const std::string& what) {
  std::string line = mark.str();
  if (!path.empty() && !is_override_of(mark, path)) line += (line.empty() ? "" : ": ") + cut_text(path, kMaxPathBytes);
  line += (line.empty() ? "" : ": ") + what;
  // Names of files and keys cannot be trusted: terminal control characters are escaped.
  lines_.push_back(cut_text(line, SIZE_MAX));
  paths_.push_back(path);
}

void Problems::add(const Problems& others) {
  lines_.insert(lines_.end(), others.lines_.begin(), others.lines_.end());
  paths_.insert(paths_.end(), others.paths_.begin(), others.paths_.end());
}

void Problems::throw_if_any() const {
  if (!lines_.empty()) throw ConfigError(lines_);
}

std::string join_path(const std::string& parent, const std::string& key) {
  return parent.empty() ? key : parent + "." + key;
}

namespace detail {

bool parse_int(const ConfigNode& node, int64_t& value) {
  return node.is_scalar() && !node.quoted && parse_int(node.text, value);
}

bool parse_double(const ConfigNode& node, double& value) {
  return node.is_scalar() && !node.quoted && parse_double(node.text, value);
}

bool parse_bool(const ConfigNode& node, bool& value) {
  return node.is_scalar() && !node.quoted && parse_bool(node.text, value);
}

bool expected(const std::string& type, const ConfigNode& node, const std::string& path, Problems& problems) {
  problems.add(node.mark, path, "expected " + type + ", got " + got(node) + ".");
  return false;
}

void throw_unknown_choice(const char* text, const std::vector<std::string>& known, const char* file, int line) {
  const std::string where = std::string(file) + ":" + std::to_string(line) + ": ";
  if (text == nullptr)
    throw ConfigError(where + "a null pointer as the value of an option. Known: " + join(known) + ".");
  throw ConfigError(where + "unknown value \"" + text + "\" of an option. Known: " + join(known) + "." +
                    did_you_mean(text, known));
}

bool unknown_choice(const ConfigNode& node, const std::string& path, const std::vector<std::string>& known,
                    Problems& problems) {
  problems.add(node.mark, path,
               "unknown value " + got(node) + ". Known: " + join(known) + "." + did_you_mean(node.text, known));
  return false;
}

std::string index_path(const std::string& path, size_t index) {
  return path + "[" + std::to_string(index) + "]";
}

bool only_about_parts(const Problems& problems, const std::string& path) {
  if (path.empty()) return false;
  const auto& paths = problems.paths();
  return !paths.empty() && std::find(paths.begin(), paths.end(), path) == paths.end();
}

}  // namespace detail

bool ValueType<bool>::read(const ConfigNode& node, bool& value, const std::string& path, Problems& problems) {
  return detail::parse_bool(node, value) || detail::expected("true or false", node, path, problems);
}

bool ValueType<int64_t>::read(const ConfigNode& node, int64_t& value, const std::string& path, Problems& problems) {
  return detail::parse_int(node, value) || detail::expected("a whole number", node, path, problems);
}

bool ValueType<int>::read(const ConfigNode& node, int& value, const std::string& path, Problems& problems) {
  int64_t wide = 0;
  if (!detail::parse_int(node, wide) || !std::in_range<int>(wide)) {
    return detail::expected("a whole number from -2147483648 to 2147483647", node, path, problems);
  }
  value = static_cast<int>(wide);
  return true;
}

bool ValueType<double>::read(const ConfigNode& node, double& value, const std::string& path, Problems& problems) {
  return detail::parse_double(node, value) || detail::expected("a number", node, path, problems);
}

bool ValueType<std::string>::read(const ConfigNode& node, std::string& value, const std::string& path,
                                  Problems& problems) {
  if (!node.is_scalar()) return detail::expected("a string", node, path, problems);
  value = node.text;
  return true;
}

}  // namespace levin
