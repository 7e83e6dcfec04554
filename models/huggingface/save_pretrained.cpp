#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "levin/adapters/lora.h"
#include "levin/checkpoint/safetensors_writer.h"
#include "levin/core/error.h"
#include "levin/core/files.h"
#include "levin/core/tensor_text.h"
#include "levin/models/huggingface/pretrained_model.h"

namespace levin {

namespace {

namespace fs = std::filesystem;

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

constexpr const char* kWhole = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

// What belongs to a model beside its weights; a tokenizer has some of these.
constexpr const char* kCompanions[] = {"tokenizer.json",
                                       "tokenizer_config.json",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "vocab.txt",
                                       "vocab.json",
                                       "merges.txt",
                                       "sentencepiece.bpe.model",
                                       "tokenizer.model",
                                       "spiece.model",
                                       "chat_template.jinja",
                                       "preprocessor_config.json",
                                       "generation_config.json"};

std::string in_folder(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / name).string();
}

std::string shard_name(size_t number, size_t count) {
  char text[64];
  std::snprintf(text, sizeof text, "model-%05zu-of-%05zu.safetensors", number, count);
  return text;
}

// "model-00001-of-00004.safetensors"
bool is_shard_name(const std::string& name) {
  const std::string pattern = shard_name(0, 0);
  return name.size() == pattern.size() && std::equal(name.begin(), name.end(), pattern.begin(), [](char a, char b) {
           return b == '0' ? a >= '0' && a <= '9' : a == b;
         });
}

void remove_file(const std::string& path) {
  std::error_code code;
  fs::remove(path, code);
  if (code) throw Error(path + ": cannot be removed: " + code.message() + ".");
}

// In the model's order, each as full as it gets.
std::vector<NamedTensors> split_into_shards(const NamedTensors& tensors, int64_t most_bytes) {
  std::vector<NamedTensors> shards(1);
  int64_t bytes = 0;
  for (const auto& item : tensors) {
    const auto size = static_cast<int64_t>(item.second.nbytes());
    if (!shards.back().empty() && bytes + size > most_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(item);
    bytes += size;
  }
  return shards;
}

void write_weights_file(const std::string& path, const NamedTensors& tensors) {
  write_safetensors(path, {tensors.begin(), tensors.end()}, {{"format", "pt"}});
}

// Readers prefer the whole file. Without an index between two saves in shards, no reader mixes old and new ones.
void write_shards(const std::string& folder, const std::vector<NamedTensors>& shards) {
  remove_file(in_folder(folder, kIndex));
  nlohmann::json map = nlohmann::json::object();
  int64_t parameters = 0, bytes = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shard_name(i + 1, shards.size());
    write_weights_file(in_folder(folder, name), shards[i]);
    for (const auto& [tensor_name, tensor] : shards[i]) {
      map[tensor_name] = name;
      parameters += tensor.numel();
      bytes += static_cast<int64_t>(tensor.nbytes());
    }
  }
  const nlohmann::json index = {{"metadata", {{"total_parameters", parameters}, {"total_size", bytes}}},
                                {"weight_map", std::move(map)}};
  write_file_durably(in_folder(folder, kIndex), index.dump(2) + "\n");
  remove_file(in_folder(folder, kWhole));
}

void remove_other_shards(const std::string& folder, size_t count) {
  for (const std::string& name : names_in(folder)) {
    if (!is_shard_name(name)) continue;
    bool is_kept = false;
    for (size_t i = 1; count > 1 && i <= count; ++i) is_kept = is_kept || name == shard_name(i, count);
    if (!is_kept) remove_file(in_folder(folder, name));
  }
}

void write_weights(const std::string& folder, const NamedTensors& tensors, int64_t most_bytes) {
  const auto shards = split_into_shards(tensors, most_bytes);
  if (shards.size() > 1) {
    write_shards(folder, shards);
  } else {
    write_weights_file(in_folder(folder, kWhole), shards[0]);
    remove_file(in_folder(folder, kIndex));
  }
  remove_other_shards(folder, shards.size());
}

void copy_companions(const std::string& from, const std::string& to) {
  std::error_code code;
  if (from.empty() || fs::equivalent(from, to, code)) return;
  for (const char* name : kCompanions) {
    const std::string source = in_folder(from, name);
    if (fs::is_regular_file(source, code)) write_file_durably(in_folder(to, name), read_file(source));
  }
}

// torch's word for a type: "float32".
std::string torch_word(at::ScalarType type) {
  switch (type) {
    case at::kHalf: return "float16";
    case at::kBFloat16: return "bfloat16";
    case at::kDouble: return "float64";
    default: return "float32";
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> PretrainedModel::tied_weights() const {
  std::vector<std::pair<std::string, std::string>> names;
  for (const Alias& alias : aliases_) names.emplace_back(alias.alias, alias.name);
  return names;
}

void PretrainedModel::save_pretrained(const std::string& folder, const SavePretrainedOptions& options) const {
  save_tensors(folder, merged_parameters(*this), options);
}

void PretrainedModel::save_tensors(const std::string& folder, const NamedTensors& tensors,
                                   const SavePretrainedOptions& unchecked) const {
  const SavePretrainedOptions options = checked(unchecked, "SavePretrainedOptions");
  std::map<std::string, at::Tensor> given(tensors.begin(), tensors.end());
  NamedTensors ordered;
  for (const auto& item : named_parameters()) {
    if (is_adapter_parameter(item.key())) continue;  // merged into the weights
    const auto place = given.find(item.key());
    if (place == given.end()) throw Error("save_pretrained " + folder + ": " + item.key() + " is missing.");
    ordered.emplace_back(*place);
  }
  for (const Alias& second : aliases_) {
    if (second.is_written) ordered.emplace_back(second.alias, given.at(second.name));
  }
  make_folder(folder);
  PretrainedConfig config = config_;
  if (!ordered.empty()) config.set("dtype", torch_word(ordered[0].second.scalar_type()));
  config.erase("torch_dtype");  // its name until transformers 5
  write_weights(folder, ordered, options.max_shard_size.bytes);
  write_file_durably(in_folder(folder, "config.json"), config.json());
  copy_companions(source_, folder);
}

}  // namespace levin
