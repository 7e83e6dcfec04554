#define PCRE2_CODE_UNIT_WIDTH 8
#include "levin/adapters/peft_folder.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <set>

#include "levin/adapters/lora_layer.h"
#include "levin/checkpoint/safetensors.h"
#include "levin/checkpoint/safetensors_writer.h"
#include "levin/checkpoint/strict_json.h"
#include "levin/core/files/files.h"
#include "levin/core/options/config_node.h"
#include "levin/core/options/error.h"
#include "levin/core/tensors.h"

namespace levin {

namespace {

constexpr uint32_t kFirstSteps = 16, kMaxSteps = 1 << 17;  // of one match
constexpr size_t kBytesPerStep = 2;                        // of a compiled expression
constexpr size_t kCharactersPerStep = 256;                 // of a name, which a step may go through
constexpr size_t kMaxExpressionLength = 4096;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

void take_steps(size_t steps, int64_t& left, const std::string& what) {
  left -= static_cast<int64_t>(steps);
  if (left >= 0) return;
  throw CheckpointError(what + " and the expressions before it need more than " + std::to_string(kMaxPatternSteps) +
                        " steps. Give fewer of them, and layers' names in full rather than .*");
}

// PCRE2 does not tell how many steps a match has taken, so it gets few, and twice as many while they are not enough.
int match(const pcre2_code* code, const std::string& name, pcre2_match_data* data, pcre2_match_context* limits,
          int64_t& steps_left, const std::string& what) {
  int result = PCRE2_ERROR_MATCHLIMIT;
  for (uint32_t steps = kFirstSteps; steps <= kMaxSteps && result == PCRE2_ERROR_MATCHLIMIT; steps *= 2) {
    take_steps(steps * (1 + name.size() / kCharactersPerStep), steps_left, what);
    pcre2_set_match_limit(limits, steps);
    result = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, 0, data, limits);
  }
  return result;
}

using Json = nlohmann::ordered_json;

constexpr const char* kConfig = "adapter_config.json";
constexpr const char* kTensors = "adapter_model.safetensors";
constexpr std::string_view kOuter = "base_model.model.";
// PEFT's wrappers: the first holds an adapted layer's own bias. With bias all, a bias within the second is stored
// twice; the third holds its value before training.
constexpr std::string_view kBaseLayer = ".base_layer.", kSaved = ".modules_to_save.", kOriginal = ".original_module.";
constexpr std::string_view kA = ".lora_A.weight";
constexpr std::string_view kEmbedding = ".lora_embedding_";  // and A or B: parameters of PEFT's layer itself
constexpr std::string_view kWeight = ".weight";
constexpr uint64_t kMaxPeftConfigBytes = 16 << 20;

std::string file_in(const std::string& folder, const std::string& name) {
  const std::string path = (std::filesystem::path(folder) / name).string();
  std::error_code code;
  if (std::filesystem::exists(path, code)) return path;
  const std::string pickle = (std::filesystem::path(folder) / "adapter_model.bin").string();
  if (name == kTensors && std::filesystem::exists(pickle, code)) {
    throw CheckpointError(folder + ": the folder has adapter_model.bin, a pickle of Python, and no " + name +
                          ". Convert it: python3 tools/convert_checkpoint.py " + pickle + " " + path);
  }
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
    refuse(path, std::string(key) + " is " + cut_text(found->dump()) + ", not of the type that PEFT writes.");
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
  for (const char* key : {"layer_replication", "target_parameters", "use_qalora", "use_bdlora",
                          "trainable_token_indices", "alora_invocation_tokens", "lora_bias", "ensure_weight_tying",
                          "arrow_config", "kasa_config", "monteclora_config"}) {
    if (!is_set(config, key)) continue;
    refuse(path, std::string(key) + " is " + cut_text(config.at(key).dump()) +
                     ", which Levin's LoRA does not have. Train the adapter without it, or merge it in PEFT "
                     "(merge_and_unload) and give the model's own folder.");
  }
}

// Other methods (pissa, olora, corda, loftq, lora_ga) compute A and B from the model's weights and change these, so
// that they differ from the weights of the model's own folder.
void check_start(const Json& config, const std::string& path) {
  constexpr std::array<std::string_view, 4> own_alone = {"gaussian", "eva", "orthogonal", "mica"};
  const auto found = config.find("init_lora_weights");
  if (found == config.end() || found->is_null() || found->is_boolean()) return;
  const std::string word = found->is_string() ? found->get<std::string>() : found->dump();
  if (std::find(own_alone.begin(), own_alone.end(), word) != own_alone.end()) return;
  refuse(path, "init_lora_weights is \"" + cut_text(word) +
                   "\": the adapter belongs to weights that were changed when it was made, not to the weights of the "
                   "model's folder. Convert it in PEFT (save_pretrained with "
                   "path_initial_model_for_weight_conversion), or merge "
                   "it there (merge_and_unload) and give the model's own folder.");
}

// rank_pattern or alpha_pattern: the values that its expressions give to these layers. The first match counts.
template <class T>
std::map<std::string, T> read_pattern(const Json& config, const std::string& path, const char* key,
                                      std::vector<std::string> layers, int64_t& steps_left) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return {};
  if (!found->is_object()) refuse(path, std::string(key) + " is " + cut_text(found->dump()) + ", and no map.");
  std::map<std::string, T> values;
  for (auto item = found->begin(); item != found->end(); ++item) {
    const std::string& expression = item.key();
    const Json& number = item.value();
    const bool is_in_range =
        number.is_number() && number.template get<double>() > 0 && number.template get<double>() < 1e15;
    if (!is_in_range || static_cast<double>(number.template get<T>()) != number.template get<double>()) {
      refuse(path, std::string(key) + ": \"" + cut_text(expression) + "\" is " + cut_text(number.dump()) +
                       ", which is no " + (std::is_integral_v<T> ? "whole number" : "number") + " above 0.");
    }
    const std::vector<std::string> named =
        detail::naming_file(path + ": " + key, [&] { return matching_layers(expression, layers, steps_left); });
    for (const std::string& layer : named) values.emplace(layer, number.template get<T>());
    if (!named.empty()) std::erase_if(layers, [&](const auto& layer) { return values.contains(layer); });
  }
  return values;
}

LoRABias read_bias(const std::string& word, const std::string& path) {
  for (const auto& [name, value] : EnumNames<LoRABias>::names) {
    if (word == name) return value;
  }
  refuse(path, "bias is \"" + cut_text(word) + "\". It is none, all or lora_only.");
}

Json read_config(const std::string& folder, PeftFolder& adapter) {
  const std::string path = file_in(folder, kConfig);
  const Json config =
      detail::naming_file(path, [&] { return detail::parse_strictly<Json>(read_file(path, kMaxPeftConfigBytes)); });
  if (!config.is_object()) refuse(path, "it is not a JSON object.");
  check_method(config, path);
  check_start(config, path);
  LoRAOptions& options = adapter.options;
  options.r = value_of<int64_t>(config, path, "r", 8);
  options.lora_alpha = value_of<double>(config, path, "lora_alpha", 8);
  options.use_rslora = value_of<bool>(config, path, "use_rslora", false);
  options.use_dora = value_of<bool>(config, path, "use_dora", false);
  options.target_modules = names_of(config, path, "target_modules");
  options.exclude_modules = names_of(config, path, "exclude_modules");
  options.modules_to_save = names_of(config, path, "modules_to_save");
  options.bias = read_bias(value_of<std::string>(config, path, "bias", "none"), path);
  adapter.fan_in_fan_out = value_of<bool>(config, path, "fan_in_fan_out", false);
  if (*options.r <= 0 || *options.lora_alpha <= 0) {
    refuse(path, "r is " + std::to_string(*options.r) + " and lora_alpha " + number_text(*options.lora_alpha) +
                     ". Both are above 0.");
  }
  return config;
}

// Whether PEFT has a tensor of this name without ".weight": an embedding's A or B, or magnitudes.
bool is_bare(std::string_view name) {
  if (name.ends_with("." + std::string(kMagnitude))) return true;
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
  for (const std::string_view wrapper : {kBaseLayer, kSaved}) {
    if (const size_t place = name.find(wrapper); place != std::string::npos) name.replace(place, wrapper.size(), ".");
  }
  return is_bare(name) ? name + std::string(kWeight) : name;
}

std::string peft_name(const std::string& name) {
  const std::string full = std::string(kOuter) + name;
  const std::string without = name.ends_with(kWeight) ? full.substr(0, full.size() - kWeight.size()) : full;
  return is_bare(without) ? without : full;
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
    if (entry.name.find(kOriginal) != std::string::npos) continue;
    const std::string name = levin_name(entry.name, file.path());
    const at::Tensor tensor = file.read(entry);
    const auto [first, is_new] = adapter.tensors.emplace(name, tensor);
    if (!is_new && !bitwise_equal(first->second, tensor)) {
      refuse(file.path(), "it has \"" + cut_text(entry.name) + "\" and another tensor for " + cut_text(name) +
                              ", whose values differ. Write the adapter anew with save_pretrained of PEFT.");
    }
    if (!is_new) continue;
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

// The expression that matches a layer's whole name and no other.
std::string expression_of(const std::string& layer) {
  std::string text = "^";
  for (const char c : layer) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_') text += '\\';
    text += c;
  }
  return text;
}

template <class T>
Json pattern_of(const std::map<std::string, T>& values) {
  Json pattern = Json::object();
  for (const auto& [layer, value] : values) pattern[expression_of(layer)] = number(static_cast<double>(value));
  return pattern;
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
                       {"bias", enum_name(options.bias)},
                       {"use_rslora", options.use_rslora.value()},
                       {"use_dora", options.use_dora.value()},
                       {"fan_in_fan_out", adapter.fan_in_fan_out},
                       {"init_lora_weights", true},
                       {"rank_pattern", pattern_of(adapter.ranks)},
                       {"alpha_pattern", pattern_of(adapter.alphas)}};
  return config.dump(2) + "\n";
}

}  // namespace

std::vector<std::string> matching_layers(const std::string& expression, const std::vector<std::string>& layers,
                                         int64_t& steps_left) {
  const std::string what = "the expression \"" + cut_text(expression) + "\"";
  if (expression.size() > kMaxExpressionLength) throw CheckpointError(what + " is too long");
  const std::string whole = "(?:.*\\.)?(?:" + expression + ")";
  int error = 0;
  PCRE2_SIZE place = 0;
  constexpr uint32_t kOptions = PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C;
  const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(whole.data()), whole.size(), kOptions, &error, &place, nullptr),
      pcre2_code_free);
  if (code == nullptr) throw CheckpointError(what + " cannot be used: " + message_of(error));
  size_t bytes = 0;
  pcre2_pattern_info(code.get(), PCRE2_INFO_SIZE, &bytes);
  take_steps(bytes / kBytesPerStep, steps_left, what);
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> limits(
      pcre2_match_context_create(nullptr), pcre2_match_context_free);
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create_from_pattern(code.get(), nullptr), pcre2_match_data_free);
  std::vector<std::string> found;
  for (const std::string& layer : layers) {
    const int result = match(code.get(), layer, data.get(), limits.get(), steps_left, what);
    if (result >= 0) {
      found.push_back(layer);
    } else if (result != PCRE2_ERROR_NOMATCH) {
      throw CheckpointError(what + " cannot be matched with " + cut_text(layer) + ": " + message_of(result));
    }
  }
  return found;
}

PeftFolder read_peft_folder(const std::string& folder) {
  PeftFolder adapter;
  const Json config = read_config(folder, adapter);
  read_tensors(folder, adapter);
  const std::string path = file_in(folder, kConfig);
  int64_t steps_left = kMaxPatternSteps;
  adapter.ranks = read_pattern<int64_t>(config, path, "rank_pattern", adapter.layers, steps_left);
  adapter.alphas = read_pattern<double>(config, path, "alpha_pattern", adapter.layers, steps_left);
  return adapter;
}

void rename_in(PeftFolder& adapter, const std::function<std::string(const std::string&)>& rename) {
  const auto in_map = [&](auto& map) {
    std::remove_reference_t<decltype(map)> renamed;
    for (auto& [name, value] : map) renamed.emplace(rename(name), std::move(value));
    map = std::move(renamed);
  };
  in_map(adapter.tensors);
  in_map(adapter.ranks);
  in_map(adapter.alphas);
  for (auto* names : {&adapter.layers, &adapter.options.target_modules, &adapter.options.modules_to_save}) {
    for (std::string& name : *names) name = rename(name);
  }
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
