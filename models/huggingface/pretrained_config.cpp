#include "levin/models/huggingface/pretrained_config.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>

#include "levin/checkpoint/strict_json.h"
#include "levin/core/files/files.h"
#include "levin/core/options/error.h"

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
    if (!json.is_object()) throw CheckpointError("it is not a JSON object");
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

namespace levin {

namespace {

constexpr uint64_t kMaxConfigBytes = 64 << 20;  // a label map of a million classes

int64_t number_of(const ConfigNode* node, int64_t otherwise) {
  int64_t number = 0;
  return node != nullptr && detail::parse_int(*node, number) ? number : otherwise;
}

}  // namespace

PretrainedConfig PretrainedConfig::read(const std::string& path) {
  std::error_code code;
  const bool is_folder = std::filesystem::is_directory(path, code);
  const std::string file = is_folder ? (std::filesystem::path(path) / "config.json").string() : path;
  if (!std::filesystem::exists(path, code)) {
    throw Error(path + ": no such file or folder. Give the folder of a model, which holds config.json.");
  }
  if (is_folder && !std::filesystem::exists(file, code)) {
    throw Error(path + ": the folder has no config.json. Give one as save_pretrained of transformers writes it.");
  }
  return parse(read_file(file, kMaxConfigBytes), file);
}

PretrainedConfig PretrainedConfig::parse(const std::string& json, const std::string& source) {
  PretrainedConfig config;
  config.source_ = source;
  config.values_ = huggingface::parse_json_config(json, source);
  const ConfigNode* type = config.find("model_type");
  if (type == nullptr || !type->is_scalar() || !type->quoted) {
    throw ConfigError(source + ": it has no \"model_type\", the kind of model that the folder holds.");
  }
  return config;
}

std::string PretrainedConfig::json() const {
  return huggingface::json_text(values_);
}

std::string PretrainedConfig::model_type() const {
  const ConfigNode* type = find("model_type");
  return type == nullptr ? "" : type->text;
}

std::vector<std::string> PretrainedConfig::architectures() const {
  std::vector<std::string> names;
  const ConfigNode* list = find("architectures");
  if (list == nullptr) return names;
  for (const ConfigNode& item : list->items) names.push_back(item.text);
  return names;
}

int64_t PretrainedConfig::num_labels() const {
  const ConfigNode* labels = find("id2label");
  if (labels != nullptr && labels->is_map()) return static_cast<int64_t>(labels->entries.size());
  // transformers leaves the map out where there are two labels, and old versions wrote the count next to it.
  return number_of(find("num_labels"), number_of(find("_num_labels"), 2));
}

std::vector<std::string> PretrainedConfig::labels() const {
  const ConfigNode* map = find("id2label");
  if (map == nullptr || !map->is_map()) return {};
  std::vector<std::string> names(map->entries.size());
  for (const ConfigEntry& entry : map->entries) {
    int64_t key = -1;
    if (!detail::parse_int(ConfigNode::scalar(entry.key), key) || key < 0 ||
        key >= static_cast<int64_t>(names.size())) {
      throw ConfigError(entry.value.mark.str() + ": id2label: \"" + cut_text(entry.key) +
                        "\" is not a number from 0 to " + std::to_string(names.size() - 1) + ".");
    }
    names[static_cast<size_t>(key)] = entry.value.text;
  }
  return names;
}

std::optional<int64_t> PretrainedConfig::pad_token_id() const {
  const int64_t id = number_of(find("pad_token_id"), -1);
  return id < 0 ? std::nullopt : std::optional(id);
}

void PretrainedConfig::set_labels(const std::vector<std::string>& labels) {
  ConfigNode names = ConfigNode::map(), numbers = ConfigNode::map();
  std::unordered_map<std::string_view, size_t> places;  // in `numbers`: set() would look for each among all
  for (size_t i = 0; i < labels.size(); ++i) {
    names.entries.push_back({std::to_string(i), {}, ConfigNode::scalar(labels[i], /*quoted=*/true)});
    const auto [place, is_new] = places.emplace(labels[i], numbers.entries.size());
    if (is_new) numbers.entries.push_back({labels[i], {}, {}});
    numbers.entries[place->second].value = ConfigNode::scalar(std::to_string(i));  // of two labels alike, the last
  }
  values_.set("id2label", std::move(names));
  values_.set("label2id", std::move(numbers));
  values_.erase("num_labels");
  values_.erase("_num_labels");
}

void PretrainedConfig::set_num_labels(int64_t count) {
  if (num_labels() == count) return;
  std::vector<std::string> labels;
  for (int64_t i = 0; i < count; ++i) labels.push_back("LABEL_" + std::to_string(i));
  set_labels(labels);
}

ConfigNode PretrainedConfig::only(const std::vector<std::string>& keys) const {
  ConfigNode node = ConfigNode::map();
  node.mark = {source_, 0, 0};
  for (const ConfigEntry& entry : values_.entries) {
    if (std::find(keys.begin(), keys.end(), entry.key) != keys.end()) node.entries.push_back(entry);
  }
  return node;
}

}  // namespace levin
