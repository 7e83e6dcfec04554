#include "levin/adapters/peft_folder.h"

#include <filesystem>
#include <set>

#include "levin/checkpoint/safetensors.h"
#include "levin/checkpoint/safetensors_writer.h"
#include "levin/checkpoint/strict_json.h"
#include "levin/core/files.h"
#include "levin/core/whole_number.h"

namespace levin {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kConfig = "adapter_config.json";
constexpr const char* kTensors = "adapter_model.safetensors";
constexpr std::string_view kOuter = "base_model.model.";
constexpr std::string_view kBaseLayer = ".base_layer.";  // PEFT's wrapper, within which the layer's own bias is
constexpr std::string_view kA = ".lora_A.weight";
constexpr std::string_view kEmbedding = ".lora_embedding_";  // and A or B: parameters of PEFT's layer itself
constexpr std::string_view kWeight = ".weight";
constexpr uint64_t kMostConfigBytes = 16 << 20;

std::string file_in(const std::string& folder, const char* name) {
  const std::string path = (std::filesystem::path(folder) / name).string();
  std::error_code code;
  if (std::filesystem::exists(path, code)) return path;
  throw CheckpointError(folder + ": the folder has no " + name +
                        ". Give one as PEFT's save_pretrained or LoRA's save_to writes it.");
}

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw CheckpointError(path + ": " + why);
}

// A value of one kind, or `otherwise` where the file has none or null.
template <class T>
T value_of(const Json& config, const std::string& path, const char* key, T otherwise) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return otherwise;
  try {
    return found->get<T>();
  } catch (const nlohmann::json::exception&) {
    refuse(path, std::string(key) + " is " + cut_text(found->dump()) + ", of another type than PEFT's.");
  }
}

std::vector<std::string> names_of(const Json& config, const std::string& path, const char* key) {
  const auto found = config.find(key);
  if (found != config.end() && found->is_string()) return {found->get<std::string>()};
  return value_of(config, path, key, std::vector<std::string>());
}

bool is_set(const Json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return false;
  if (found->is_boolean()) return found->get<bool>();
  return !found->empty();
}

void check_method(const Json& config, const std::string& path) {
  const auto type = value_of<std::string>(config, path, "peft_type", "");
  if (type != "LORA") {
    refuse(path, "its peft_type is \"" + cut_text(type) + "\", and Levin reads LORA.");
  }
  for (const char* key :
       {"use_dora", "rank_pattern", "alpha_pattern", "layer_replication", "target_parameters", "use_qalora",
        "trainable_token_indices", "alora_invocation_tokens", "lora_bias", "ensure_weight_tying"}) {
    if (!is_set(config, key)) continue;
    refuse(path, std::string(key) + " is " + cut_text(config.at(key).dump()) +
                     ", which Levin's LoRA does not have. Train the adapter without it, or merge it in PEFT "
                     "(merge_and_unload) and give the model's own folder.");
  }
}

LoRABias read_bias(const std::string& word, const std::string& path) {
  for (const auto& [name, value] : EnumNames<LoRABias>::names) {
    if (word == name) return value;
  }
  refuse(path, "bias is \"" + cut_text(word) + "\". It is none, all or lora_only.");
}

void read_config(const std::string& folder, PeftFolder& adapter) {
  const std::string path = file_in(folder, kConfig);
  const Json config =
      detail::naming_file(path, [&] { return detail::parse_strictly<Json>(read_file(path, kMostConfigBytes)); });
  if (!config.is_object()) refuse(path, "it is no JSON object.");
  check_method(config, path);
  LoRAOptions& options = adapter.options;
  options.r = value_of<int64_t>(config, path, "r", 8);
  options.lora_alpha = value_of<double>(config, path, "lora_alpha", 8);
  options.use_rslora = value_of<bool>(config, path, "use_rslora", false);
  options.target_modules = names_of(config, path, "target_modules");
  options.exclude_modules = names_of(config, path, "exclude_modules");
  options.modules_to_save = names_of(config, path, "modules_to_save");
  options.bias = read_bias(value_of<std::string>(config, path, "bias", "none"), path);
  adapter.fan_in_fan_out = value_of<bool>(config, path, "fan_in_fan_out", false);
  if (*options.r <= 0 || *options.lora_alpha <= 0) {
    refuse(path, "r is " + std::to_string(*options.r) + " and lora_alpha " + number_text(*options.lora_alpha) +
                     ". Both are above 0.");
  }
}

// ".lora_embedding_A" or ".lora_embedding_B" at the end.
bool is_of_embedding(std::string_view name) {
  if (name.empty() || (name.back() != 'A' && name.back() != 'B')) return false;
  name.remove_suffix(1);
  return name.ends_with(kEmbedding);
}

std::string levin_name(std::string name, const std::string& path) {
  if (!name.starts_with(kOuter)) {
    refuse(path, "it has \"" + cut_text(name) + "\", and names of PEFT's adapters begin with " + std::string(kOuter) +
                     ". Give an adapter that save_pretrained of PEFT wrote.");
  }
  name.erase(0, kOuter.size());
  if (const size_t place = name.find(kBaseLayer); place != std::string::npos) {
    name.replace(place, kBaseLayer.size(), ".");
  }
  if (name.find("lora_magnitude_vector") != std::string::npos) {
    refuse(path, "it has " + cut_text(name) + ", and Levin's LoRA has no DoRA.");
  }
  return is_of_embedding(name) ? name + std::string(kWeight) : name;
}

std::string peft_name(const std::string& name) {
  const std::string full = std::string(kOuter) + name;
  const std::string without = name.ends_with(kWeight) ? full.substr(0, full.size() - kWeight.size()) : full;
  return is_of_embedding(without) ? without : full;
}

// The layer of which it is the A, or "".
std::string layer_of(const std::string& name) {
  for (const std::string& end : {std::string(kA), std::string(kEmbedding) + "A" + std::string(kWeight)}) {
    if (name.ends_with(end)) return name.substr(0, name.size() - end.size());
  }
  return "";
}

void read_tensors(const std::string& folder, PeftFolder& adapter) {
  const SafetensorsFile file(file_in(folder, kTensors));
  for (const auto& entry : file.entries()) {
    const std::string name = levin_name(entry.name, file.path());
    adapter.tensors[name] = file.read(entry);
    if (const std::string layer = layer_of(name); !layer.empty()) adapter.layers.push_back(layer);
  }
  std::sort(adapter.layers.begin(), adapter.layers.end());
  if (adapter.layers.empty())
    refuse(file.path(), "it has no tensor whose name ends with lora_A.weight or lora_embedding_A.");
}

// An integer where it is one, as PEFT writes it.
Json number(double value) {
  return is_whole_number(value) ? Json(static_cast<int64_t>(value)) : Json(value);
}

Json list_or_null(const std::vector<std::string>& names) {
  return names.empty() ? Json() : Json(names);
}

std::string config_text(const PeftFolder& adapter) {
  const LoRAOptions& options = adapter.options;
  const Json config = {{"peft_type", "LORA"},
                       {"task_type", nullptr},
                       {"base_model_name_or_path", nullptr},
                       {"inference_mode", true},
                       {"r", options.r.value()},
                       {"lora_alpha", number(options.lora_alpha.value())},
                       {"lora_dropout", options.lora_dropout},
                       {"target_modules", options.target_modules},
                       {"exclude_modules", list_or_null(options.exclude_modules)},
                       {"modules_to_save", list_or_null(options.modules_to_save)},
                       {"bias", enum_word(options.bias)},
                       {"use_rslora", options.use_rslora.value()},
                       {"fan_in_fan_out", adapter.fan_in_fan_out},
                       {"init_lora_weights", true},
                       {"rank_pattern", Json::object()},
                       {"alpha_pattern", Json::object()}};
  return config.dump(2) + "\n";
}

}  // namespace

PeftFolder read_peft_folder(const std::string& folder) {
  PeftFolder adapter;
  read_config(folder, adapter);
  read_tensors(folder, adapter);
  return adapter;
}

void write_peft_folder(const std::string& folder, const PeftFolder& adapter) {
  make_folder(folder);
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [name, tensor] : adapter.tensors) {
    tensors[peft_name(name)] = tensor.detach().to(at::kCPU).contiguous();
  }
  const auto path = [&](const char* name) { return (std::filesystem::path(folder) / name).string(); };
  write_safetensors(path(kTensors), tensors, {{"format", "pt"}});
  write_file_durably(path(kConfig), config_text(adapter));
}

}  // namespace levin
