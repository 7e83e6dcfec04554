#include "levin/models/huggingface/pretrained_model.h"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "levin/adapters/lora.h"
#include "levin/checkpoint/safetensors_writer.h"
#include "levin/checkpoint/weights_source.h"
#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/tensors.h"
#include "levin/models/huggingface/layers.h"

namespace levin::huggingface {

namespace {

using Tensors = std::map<std::string, at::Tensor>;
using Source = std::map<std::string, WeightsSource::Tensor>;

Tensors parameters_of(const PretrainedModel& model) {
  Tensors tensors;
  for (const auto& item : model.named_parameters()) tensors[item.key()] = item.value();
  return tensors;
}

// Buffers of old versions, which hold no weights.
bool is_old_buffer(const std::string& name) {
  const auto ends = [&](const char* end) { return name.ends_with(end); };
  return ends("position_ids") || ends("rotary_emb.inv_freq") || ends(".attn.bias") || ends(".attn.masked_bias");
}

// TensorFlow's names of a norm's parameters, which files converted from it still have.
std::string modern_name(std::string name) {
  constexpr std::pair<std::string_view, std::string_view> kOld[] = {{"LayerNorm.gamma", "LayerNorm.weight"},
                                                                    {"LayerNorm.beta", "LayerNorm.bias"}};
  for (const auto& [old, now] : kOld) {
    if (name.ends_with(old)) name.replace(name.size() - old.size(), old.size(), now);
  }
  return name;
}

// Returns the model's name for a tensor of the file: the same name, or with the base model's prefix, or without it.
std::string name_in_model(const std::string& in_file, const PretrainedModel& model,
                          const std::set<std::string>& known) {
  const std::string name = modern_name(in_file), prefix = model.base_model_prefix() + ".";
  if (known.contains(name)) return name;
  if (known.contains(prefix + name)) return prefix + name;
  if (name.starts_with(prefix) && known.contains(name.substr(prefix.size()))) return name.substr(prefix.size());
  return name;
}

// What goes where: the file's tensors by the model's names.
struct Matches {
  Source found = {};    // of parameters, with the right shape
  Source aliases = {};  // of second names of parameters that are in the file under the first
  LoadReport report = {};
};

Matches match(const PretrainedModel& model, const Tensors& own, const WeightsSource& source) {
  std::set<std::string> known;
  for (const auto& [name, tensor] : own) known.insert(name);
  for (const auto& second : model.aliases()) known.insert(second.alias);
  Matches matches;
  Source named;
  for (const auto& [in_file, tensor] : source.tensors()) named.emplace(name_in_model(in_file, model, known), tensor);
  for (const auto& second : model.aliases()) {
    const auto place = named.find(second.alias);
    if (place == named.end()) continue;
    if (!named.emplace(second.name, place->second).second && !second.is_written) matches.aliases.insert(*place);
    named.erase(place);
  }
  for (const auto& [name, tensor] : named) {
    const auto mine = own.find(name);
    const std::string shape = shape_text(tensor.shape);
    if (mine == own.end()) {
      if (!is_old_buffer(name)) matches.report.unexpected.push_back(cut_text(name, 160));
    } else if (mine->second.sizes() == at::IntArrayRef(tensor.shape)) {
      matches.found.emplace(name, tensor);
    } else {
      matches.report.mis_shaped.push_back(name + " is " + shape + " in the file and " +
                                          shape_text(mine->second.sizes()) + " in the model");
    }
  }
  for (const auto& [name, tensor] : own) {
    if (!matches.found.contains(name)) matches.report.newly_initialized.push_back(name);
  }
  return matches;
}

void check(const Matches& matches, const std::string& folder, bool ignore_mismatched_sizes) {
  const LoadReport& report = matches.report;
  if (matches.found.empty()) {
    throw CheckpointError(folder + ": none of its tensors fits the model of its config.json: " + report.str() + ".");
  }
  if (report.mis_shaped.empty() || ignore_mismatched_sizes) return;
  throw CheckpointError(folder + ": its weights do not fit: " + join(report.mis_shaped) +
                        ". Set ignore_mismatched_sizes to start these anew, as for a head with other labels.");
}

// New weights, such as a head's, are never more than the file has: else the config.json belongs to a different model.
void check_new(const Matches& matches, const Tensors& own, const WeightsSource& source, const std::string& folder) {
  constexpr double few = 16e6;
  double has = 0, lacks = 0;
  for (const auto& [name, tensor] : source.tensors()) {
    has += tensor.bytes == 0 ? 0 : static_cast<double>(c10::multiply_integers(tensor.shape));
  }
  std::pair<double, std::string> largest;
  for (const std::string& name : matches.report.newly_initialized) {
    const auto numbers = static_cast<double>(own.at(name).numel());
    lacks += numbers;
    largest = std::max(largest, {numbers, name});
  }
  if (lacks <= std::max(has, few)) return;
  throw CheckpointError(folder + ": the model of its config.json has " + number_text(lacks) +
                        " numbers that its weights do not have (" + largest.second +
                        " has the most), and the weights have " + number_text(has) +
                        ". Give the config.json that was saved with them.");
}

// One tensor at a time and thread, so that little more memory is needed than the model's own.
void read_into(const Tensors& own, const Source& found) {
  std::vector<std::pair<at::Tensor, WeightsSource::Tensor>> jobs;
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : found) {
    jobs.emplace_back(own.at(name), tensor);
    bytes += tensor.bytes;
  }
  read_in_parallel(jobs.size(), bytes, [&](size_t i) {
    const at::AutoGradMode no_grad(false);
    jobs[i].first.copy_(jobs[i].second.read());
  });
}

// transformers leaves such weights untied, with a warning; here the config must be right.
void check_aliases(const PretrainedModel& model, const Tensors& own, const Source& aliases, const std::string& folder) {
  for (const auto& [alias, name, is_written] : model.aliases()) {
    const auto second = aliases.find(alias);
    if (second == aliases.end()) continue;
    const at::Tensor mine = own.at(name);
    const at::Tensor other = second->second.read().to(mine.options());
    if (mine.sizes() == other.sizes() && at::equal(mine.detach(), other)) continue;
    throw CheckpointError(folder + ": its config.json ties " + alias + " to " + name +
                          ", and its files hold two different tensors. Set \"tie_word_embeddings\": false there.");
  }
}

}  // namespace

void init_weights(PretrainedModel& model, const std::vector<std::string>& only) {
  const at::AutoGradMode no_grad(false);
  double deviation = 0.02;
  if (const ConfigNode* range = model.config().find("initializer_range")) {
    if (!detail::parse_double(*range, deviation) || deviation == 0) deviation = 0.02;
  }
  const std::set<std::string> wanted(only.begin(), only.end());
  for (const auto& module : model.named_modules("", /*include_self=*/true)) {
    auto* starter = dynamic_cast<HasStartingWeights*>(module.value().get());
    for (const auto& item : module.value()->named_parameters(/*recurse=*/false)) {
      const std::string name = module.key().empty() ? item.key() : module.key() + "." + item.key();
      if (!wanted.empty() && !wanted.contains(name)) continue;
      if (starter == nullptr)
        throw Error("init_weights: the module of " + name + " does not define its starting value.");
      at::Tensor parameter = item.value();
      starter->start(item.key(), parameter, deviation);
    }
  }
}

std::string LoadReport::str() const {
  std::string text;
  const auto add = [&](const std::string& what, const std::vector<std::string>& names) {
    if (!names.empty()) text += (text.empty() ? "" : "; ") + what + join(names, /*most=*/8);
  };
  add("newly initialized: ", newly_initialized);
  add("not in the model: ", unexpected);
  add("of a different shape: ", mis_shaped);
  return text;
}

LoadReport load_pretrained(PretrainedModel& model, const WeightsSource& source, const std::string& folder,
                           bool ignore_mismatched_sizes) {
  const Tensors own = parameters_of(model);
  Matches matches = match(model, own, source);
  check(matches, folder, ignore_mismatched_sizes);
  check_new(matches, own, source, folder);
  matches.report.loaded = matches.found.size();
  read_into(own, matches.found);
  check_aliases(model, own, matches.aliases, folder);
  if (!matches.report.newly_initialized.empty()) init_weights(model, matches.report.newly_initialized);
  return matches.report;
}

}  // namespace levin::huggingface

namespace levin {

namespace {

namespace fs = std::filesystem;

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

constexpr const char* kWhole = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

std::string in_folder(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / name).string();
}

std::string shard_name(size_t number, size_t count) {
  return formatted("model-%05zu-of-%05zu.safetensors", number, count);
}

// "model-00001-of-00004.safetensors"
bool is_weights_shard(const std::string& name) {
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
std::vector<NamedTensors> split_into_shards(const NamedTensors& tensors, int64_t max_bytes) {
  std::vector<NamedTensors> shards(1);
  int64_t bytes = 0;
  for (const auto& item : tensors) {
    const auto size = static_cast<int64_t>(item.second.nbytes());
    if (!shards.back().empty() && bytes + size > max_bytes) {
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
    if (!is_weights_shard(name)) continue;
    bool is_kept = false;
    for (size_t i = 1; count > 1 && i <= count; ++i) is_kept = is_kept || name == shard_name(i, count);
    if (!is_kept) remove_file(in_folder(folder, name));
  }
}

void write_weights(const std::string& folder, const NamedTensors& tensors, int64_t max_bytes) {
  const auto shards = split_into_shards(tensors, max_bytes);
  if (shards.size() > 1) {
    write_shards(folder, shards);
  } else {
    write_weights_file(in_folder(folder, kWhole), shards[0]);
    remove_file(in_folder(folder, kIndex));
  }
  remove_other_shards(folder, shards.size());
}

// Copies the files that belong to a model in addition to its weights; tokenizers have some of these.
void copy_companions(const std::string& from, const std::string& to) {
  std::error_code code;
  if (from.empty() || fs::equivalent(from, to, code)) return;
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt",
        "vocab.json", "merges.txt", "sentencepiece.bpe.model", "tokenizer.model", "spiece.model", "chat_template.jinja",
        "preprocessor_config.json", "generation_config.json"}) {
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

void PretrainedModel::check_ids(const ModelInputs& inputs, std::optional<int64_t> positions) const {
  const std::string who = config_.model_type() + ": ";
  const at::Tensor &ids = inputs.input_ids, &mask = inputs.attention_mask;
  if (!ids.defined()) throw Error(who + "it reads text: set input_ids, (batch, tokens) int64.");
  if (ids.dim() != 2 || ids.size(1) == 0) {
    throw Error(who + "input_ids must be (batch, tokens), got " + shape_text(ids.sizes()) + ".");
  }
  if (mask.defined() && mask.sizes() != ids.sizes()) {
    throw Error(who + "attention_mask must have the shape of input_ids, " + shape_text(ids.sizes()) + ", got " +
                shape_text(mask.sizes()) + ".");
  }
  if (!positions || ids.size(1) <= *positions) return;
  throw Error(who + "got samples of " + std::to_string(ids.size(1)) + " tokens, and the model has " +
              std::to_string(*positions) + " positions. Truncate the documents (the data's max_length or block_size).");
}

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
