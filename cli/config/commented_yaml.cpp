#include "levin/cli/config/commented_yaml.h"

#include <algorithm>
#include <string_view>

#include "levin/core/options/error.h"

namespace levin {

namespace {

constexpr const char* kCommentKey = "\n#";  // keys with a line break do not occur in files written by Levin

const ConfigNode* comment_of(const ConfigNode& node) {
  return node.is_map() && node.entries.size() == 1 ? node.find(kCommentKey) : nullptr;
}

bool has_comments(const ConfigNode& node) {
  return std::any_of(node.items.begin(), node.items.end(),
                     [](const auto& item) { return comment_of(item) != nullptr || has_comments(item); }) ||
         std::any_of(node.entries.begin(), node.entries.end(),
                     [](const auto& entry) { return entry.key == kCommentKey || has_comments(entry.value); });
}

std::string comment_lines(const std::string& text, size_t indent) {
  std::string out;
  for (const std::string& line : split(text, '\n')) out += std::string(indent, ' ') + "# " + line + "\n";
  return out;
}

// The text below a key or after a dash.
std::string block(const ConfigNode& node, int indent) {
  return has_comments(node) ? to_commented_yaml(node, indent) : to_yaml(node, indent);
}

std::string entry_yaml(const ConfigEntry& entry, int indent) {
  if (entry.key == kCommentKey) return comment_lines(entry.value.text, static_cast<size_t>(indent));
  ConfigNode alone = ConfigNode::map();
  if (!has_comments(entry.value)) {
    alone.set(entry.key, entry.value);
    return to_yaml(alone, indent);
  }
  if (!has_entries(entry.value)) return block(entry.value, indent);
  alone.set(entry.key, ConfigNode{});
  const std::string key = to_yaml(alone, indent);  // "key: null"
  return key.substr(0, key.rfind(' ')) + "\n" + block(entry.value, indent + 2);
}

}  // namespace

void add_comment(ConfigNode& container, const std::string& text) {
  ConfigEntry comment{kCommentKey, {}, ConfigNode::scalar(text)};
  if (!container.is_list()) {
    if (!container.is_map()) container = ConfigNode::map();
    container.entries.push_back(std::move(comment));
    return;
  }
  ConfigNode item = ConfigNode::map();
  item.entries.push_back(std::move(comment));
  container.items.push_back(std::move(item));
}

bool has_entries(const ConfigNode& container) {
  return std::any_of(container.items.begin(), container.items.end(),
                     [](const auto& item) { return comment_of(item) == nullptr; }) ||
         std::any_of(container.entries.begin(), container.entries.end(),
                     [](const auto& entry) { return entry.key != kCommentKey; });
}

std::string to_commented_yaml(const ConfigNode& node, int indent) {
  std::string out;
  for (const auto& entry : node.entries) out += entry_yaml(entry, indent);
  for (const auto& item : node.items) {
    if (const ConfigNode* comment = comment_of(item)) {
      out += comment_lines(comment->text, static_cast<size_t>(indent));
      continue;
    }
    std::string lines = block(item, indent + 2);
    lines[static_cast<size_t>(indent)] = '-';  // the first key of an item follows its dash
    out += lines;
  }
  return out;
}

}  // namespace levin
