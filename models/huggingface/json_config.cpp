#include "levin/models/huggingface/json_config.h"

#include <nlohmann/json.hpp>

#include "levin/checkpoint/strict_json.h"
#include "levin/core/error.h"

namespace levin::huggingface {

namespace {

using Json = nlohmann::ordered_json;

ConfigNode node_of(const Json& json, const Mark& mark) {
  ConfigNode node;
  if (json.is_object()) {
    node = ConfigNode::map();
    // Not set(), which looks for the key first: a label map may have thousands, and the parser has refused doubles.
    for (const auto& [key, value] : json.items()) node.entries.push_back({key, mark, node_of(value, mark)});
  } else if (json.is_array()) {
    node = ConfigNode::list();
    for (const auto& item : json) node.items.push_back(node_of(item, mark));
  } else if (json.is_string()) {
    node = ConfigNode::scalar(json.get<std::string>(), /*quoted=*/true);
  } else if (!json.is_null()) {
    node = ConfigNode::scalar(json.dump());
  }
  node.mark = mark;
  return node;
}

void write_node(const ConfigNode& node, int indent, std::string& text) {
  const std::string inner = "\n" + std::string(static_cast<size_t>(indent) + 2, ' ');
  const std::string outer = "\n" + std::string(static_cast<size_t>(indent), ' ');
  switch (node.kind) {
    case ConfigNode::Kind::null: text += "null"; return;
    case ConfigNode::Kind::scalar: text += node.quoted ? Json(node.text).dump() : node.text; return;
    case ConfigNode::Kind::list:
      text += "[";
      for (size_t i = 0; i < node.items.size(); ++i) {
        text += (i == 0 ? "" : ",") + inner;
        write_node(node.items[i], indent + 2, text);
      }
      text += node.items.empty() ? "]" : outer + "]";
      return;
    case ConfigNode::Kind::map:
      text += "{";
      for (size_t i = 0; i < node.entries.size(); ++i) {
        text += (i == 0 ? "" : ",") + inner + Json(node.entries[i].key).dump() + ": ";
        write_node(node.entries[i].value, indent + 2, text);
      }
      text += node.entries.empty() ? "}" : outer + "}";
      return;
  }
}

}  // namespace

ConfigNode parse_json_config(const std::string& text, const std::string& source) {
  try {
    const auto json = detail::parse_strictly<Json>(text);
    if (!json.is_object()) throw CheckpointError("it is no JSON object");
    return node_of(json, {source, 0, 0});
  } catch (const CheckpointError& error) {
    throw ConfigError(source + ": " + error.what() + ".");
  }
}

std::string json_text(const ConfigNode& node) {
  std::string text;
  write_node(node, 0, text);
  return text + "\n";
}

}  // namespace levin::huggingface
