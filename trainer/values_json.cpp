#include "levin/trainer/values_json.h"

#include "levin/core/error.h"
#include "levin/trainer/strict_json.h"

namespace levin {

namespace {

using Json = nlohmann::ordered_json;

// Note [Escapes in JSON values]
// An object with one key that is "plain" or "map" is no map of the user's: {"plain": "1e-3"} is the unquoted scalar
// 1e-3, whose text a JSON number would not keep; {"map": {…}} is a map that would else look like one of the two.
bool looks_like_escape(const ConfigNode& node) {
  return node.entries.size() == 1 && (node.entries[0].key == "plain" || node.entries[0].key == "map");
}

// Bools and numbers whose JSON text is the very text that was written.
bool is_literal(const std::string& text, Json& value) {
  if (text.empty() || text == "null" || text.find_first_of("\"[{") != std::string::npos) return false;
  value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return !value.is_discarded() && value.dump() == text;
}

Json to_json(const ConfigNode& node) {
  Json value;
  switch (node.kind) {
    case ConfigNode::Kind::null: return nullptr;
    case ConfigNode::Kind::scalar:
      if (node.quoted) return node.text;
      if (!is_literal(node.text, value)) value = Json{{"plain", node.text}};
      return value;
    case ConfigNode::Kind::list:
      value = Json::array();
      for (const auto& item : node.items) value.push_back(to_json(item));
      return value;
    case ConfigNode::Kind::map: break;
  }
  value = Json::object();
  for (const auto& entry : node.entries) value[entry.key] = to_json(entry.value);
  return looks_like_escape(node) ? Json{{"map", value}} : value;
}

ConfigNode map_from_json(const Json& object);

ConfigNode from_json(const Json& value) {
  if (value.is_null()) return {};
  if (value.is_string()) return ConfigNode::scalar(value.get<std::string>(), true);
  if (value.is_array()) {
    ConfigNode list = ConfigNode::list();
    for (const auto& item : value) list.items.push_back(from_json(item));
    return list;
  }
  if (!value.is_object()) return ConfigNode::scalar(value.dump());
  if (value.size() == 1 && value.begin().key() == "plain" && value.begin()->is_string()) {
    return ConfigNode::scalar(value.begin()->get<std::string>());
  }
  if (value.size() == 1 && value.begin().key() == "map" && value.begin()->is_object())
    return map_from_json(*value.begin());
  return map_from_json(value);
}

ConfigNode map_from_json(const Json& object) {
  ConfigNode map = ConfigNode::map();
  // Keys are known to differ, so they need not be looked up as set() does.
  for (const auto& [key, value] : object.items()) map.entries.push_back({key, {}, from_json(value)});
  return map;
}

}  // namespace

std::string values_to_json(const ConfigNode& values) {
  try {
    return to_json(values).dump();
  } catch (const Json::exception& error) {
    throw CheckpointError(std::string("the values hold text that is not UTF-8: ") + error.what() +
                          ". Keep bytes in a tensor instead.");
  }
}

ConfigNode values_from_json(const std::string& text) {
  return from_json(detail::parse_strictly<Json>(text));
}

}  // namespace levin
