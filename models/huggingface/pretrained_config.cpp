#include "levin/models/huggingface/pretrained_config.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <unordered_map>

#include "levin/core/error.h"
#include "levin/core/files.h"
#include "levin/models/huggingface/json_config.h"

namespace levin {

namespace {

constexpr uint64_t kMostConfigBytes = 64 << 20;  // a label map of a million classes

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
    throw Error(path + ": there is no such file or folder. Give the folder of a model, which holds config.json.");
  }
  if (is_folder && !std::filesystem::exists(file, code)) {
    throw Error(path + ": the folder has no config.json. Give one as save_pretrained of transformers writes it.");
  }
  return parse(read_file(file, kMostConfigBytes), file);
}

PretrainedConfig PretrainedConfig::parse(const std::string& json, const std::string& source) {
  PretrainedConfig config;
  config.source_ = source;
  config.values_ = huggingface::parse_json_config(json, source);
  const ConfigNode* type = config.find("model_type");
  if (type == nullptr || !type->is_scalar() || !type->quoted) {
    throw ConfigError(source + ": it has no \"model_type\", which says what kind of model the folder holds.");
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
  // transformers leaves the map out where there are two labels, and old versions wrote the count beside it.
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
      throw ConfigError(entry.value.mark.str() + ": id2label: \"" + cut_text(entry.key) + "\" is no number from 0 to " +
                        std::to_string(names.size() - 1) + ".");
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
