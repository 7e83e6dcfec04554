#include "levin/cli/config/planned_config.h"

#include <algorithm>

#include "levin/core/error.h"
#include "levin/yaml/yaml_file.h"

namespace levin {

namespace {

constexpr size_t kInOneLine = 6;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    lines.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return lines;
}

size_t indent_of(const std::string& line) {
  return std::min(line.find_first_not_of(' '), line.size());
}

bool says_something(const std::string& line) {
  const size_t start = line.find_first_not_of(" \t\r");
  return start != std::string::npos && line[start] != '#';
}

std::string flow_list(const std::vector<std::string>& modules) {
  std::string text;
  for (const std::string& name : modules) text += (text.empty() ? "\"" : ", \"") + name + "\"";
  return "[" + text + "]";
}

std::vector<std::string> recompute_lines(const std::vector<std::string>& modules, size_t indent) {
  const std::string space(indent, ' ');
  if (modules.empty()) return {};
  if (modules.size() <= kInOneLine) return {space + "recompute: {modules: " + flow_list(modules) + "}"};
  std::vector<std::string> lines = {space + "recompute:", space + "  modules:"};
  for (const std::string& name : modules) lines.push_back(space + "    - \"" + name + "\"");
  return lines;
}

// The lines below `trainer:`, whose children have the same indentation.
void edit_block(std::vector<std::string>& lines, size_t trainer, const std::vector<std::string>& modules) {
  size_t end = trainer + 1;
  size_t indent = 0;
  for (; end < lines.size() && (!says_something(lines[end]) || indent_of(lines[end]) > 0); ++end) {
    if (indent == 0 && says_something(lines[end])) indent = indent_of(lines[end]);
  }
  if (indent == 0) indent = 2;
  size_t place = trainer + 1;
  for (size_t k = trainer + 1; k < end; ++k) {
    if (indent_of(lines[k]) != indent || lines[k].compare(indent, 10, "recompute:") != 0) continue;
    size_t last = k + 1;  // what belongs to the key; a comment below it does not
    for (size_t next = last; next < end; ++next) {
      if (says_something(lines[next]) && indent_of(lines[next]) <= indent) break;
      if (says_something(lines[next])) last = next + 1;
    }
    lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(k), lines.begin() + static_cast<std::ptrdiff_t>(last));
    place = k;
    break;
  }
  const auto added = recompute_lines(modules, indent);
  lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(place), added.begin(), added.end());
}

// trainer: {max_epochs: 3}
void edit_flow(std::string& line, const std::vector<std::string>& modules) {
  if (modules.empty()) return;
  const size_t brace = line.find('{');
  const size_t next = line.find_first_not_of(' ', brace + 1);
  const bool alone = next != std::string::npos && line[next] == '}';
  line.insert(brace + 1, "recompute: {modules: " + flow_list(modules) + "}" + (alone ? "" : ", "));
}

std::vector<std::string> modules_in(const std::string& text, const std::string& path, Problems& problems) {
  const ConfigNode config = read_yaml_text(text, path, problems);
  const ConfigNode* trainer = config.find("trainer");
  const ConfigNode* recompute = trainer == nullptr ? nullptr : trainer->find("recompute");
  const ConfigNode* modules = recompute == nullptr ? nullptr : recompute->find("modules");
  std::vector<std::string> names;
  if (modules == nullptr) return names;
  for (const ConfigNode& item : modules->items) names.push_back(item.text);
  return names;
}

}  // namespace

std::string with_recompute(const std::string& text, const std::string& path, const std::vector<std::string>& modules) {
  std::vector<std::string> lines = lines_of(text);
  const auto trainer =
      std::find_if(lines.begin(), lines.end(), [](const std::string& line) { return line.starts_with("trainer:"); });
  if (trainer == lines.end()) {
    if (!modules.empty()) lines.emplace_back("trainer:");
    for (const std::string& line : recompute_lines(modules, 2)) lines.push_back(line);
  } else {
    const size_t value = trainer->find_first_not_of(' ', 8);
    const bool flow = value != std::string::npos && (*trainer)[value] == '{';
    flow ? edit_flow(*trainer, modules) : edit_block(lines, static_cast<size_t>(trainer - lines.begin()), modules);
  }
  std::string planned;
  for (const std::string& line : lines) planned += line + "\n";
  Problems problems;
  if (modules_in(planned, path, problems) == modules && problems.empty()) return planned;
  throw ConfigError(path + ": the plan cannot be written into it without changing the rest, as \"trainer\" is not " +
                    "written as lines below it. Write trainer.recompute there: {modules: " + flow_list(modules) + "}.");
}

}  // namespace levin
