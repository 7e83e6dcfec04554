#include "levin/adapters/lora.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <variant>

#include "levin/adapters/lora_layer.h"
#include "levin/adapters/lora_targets.h"
#include "levin/adapters/peft_folder.h"
#include "levin/core/options/error.h"
#include "levin/core/tensors.h"
#include "levin/core/weight_use.h"

namespace levin {

namespace {

using torch::nn::Module;

at::Tensor full_tensor(const WholeTensor& whole, const at::Tensor& parameter) {
  return whole ? whole(parameter) : parameter.detach();
}

std::string weight_name(const std::string& layer) {
  return layer.empty() ? "weight" : layer + ".weight";
}

// Another module with the same weight that computes something else with it, by its name, or "".
std::string other_layer(const Module& module, const std::string& own, const LoRALayer& layer) {
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    const auto parameters = item.value()->named_parameters(/*recurse=*/false);
    const at::Tensor* weight = parameters.find("weight");
    if (item.key() == own || weight == nullptr || !weight->is_same(layer.weight())) continue;
    const auto kind = layer_kind(item.key(), *item.value());
    const auto* other = std::get_if<TargetLayer>(&kind);
    if (other == nullptr || other->use != layer.use()) return item.key();
  }
  return "";
}

// Where a model computes logits with the rows of an adapted embedding, or "".
std::string tied_place(const Module& module, const std::string& own, const LoRALayer& layer) {
  if (layer.use() != WeightUse::embedding) return "";
  const auto search = [&](const Module& model, const std::string& prefix) -> std::string {
    const auto* tied = dynamic_cast<const HasTiedWeights*>(&model);
    if (tied == nullptr) return "";
    for (const auto& [second, name] : tied->tied_weights()) {
      if (prefix + name == weight_name(own)) return prefix + second;
    }
    return "";
  };
  std::string place = search(module, "");
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    if (place.empty()) place = search(*item.value(), item.key() + ".");
  }
  return place;
}

using NamedLayers = std::vector<std::pair<std::string, std::shared_ptr<LoRALayer>>>;

bool ends_bias(const std::string& name) {
  return name == "bias" || name.ends_with(".bias");
}

bool is_within(const std::string& name, const std::vector<std::string>& modules) {
  return std::any_of(modules.begin(), modules.end(), [&](const auto& one) { return name.starts_with(one + "."); });
}

// Whether it is this parameter of an adapted layer.
bool is_adapted(const std::string& name, const std::string& parameter, const NamedLayers& layers) {
  return std::any_of(layers.begin(), layers.end(),
                     [&](const auto& item) { return name == item.first + "." + parameter; });
}

// Whether LoRA trains a parameter of the model's own.
bool trains(const std::string& name, const LoRAOptions& options, const NamedLayers& layers) {
  if (is_within(name, options.modules_to_save)) return true;
  if (options.bias == LoRABias::all) return ends_bias(name);
  return options.bias == LoRABias::lora_only && is_adapted(name, "bias", layers);
}

// ---- options and an adapter's folder -------------------------------------------------------------------------------

// The value of an option that the folder has too.
template <class T>
void take(std::optional<T>& own, const std::optional<T>& other, const char* name, const std::string& path) {
  if (own && *own != *other) {
    throw ConfigError(std::string("LoRAOptions.") + name + ": " + ValueType<T>::write(*own).text + ", but " + path +
                      "/adapter_config.json has " + ValueType<T>::write(*other).text + ". Leave it out, or give that.");
  }
  own = other;
}

void refuse_beside_path(const LoRAOptions& options) {
  const auto refuse = [&](const char* name) {
    throw ConfigError(std::string("LoRAOptions.") + name + ": the adapter in path (" + options.path +
                      ") determines which modules it is for. Leave " + name + " out.");
  };
  if (!options.target_modules.empty()) refuse("target_modules");
  if (!options.exclude_modules.empty()) refuse("exclude_modules");
  if (!options.modules_to_save.empty()) refuse("modules_to_save");
  if (!options.rank_pattern.empty()) refuse("rank_pattern");
  if (!options.alpha_pattern.empty()) refuse("alpha_pattern");
}

LoRAOptions resolve(LoRAOptions options, const std::optional<PeftFolder>& folder, const Module& module,
                    const std::string& outer) {
  if (folder) {
    refuse_beside_path(options);
    take(options.r, folder->options.r, "r", options.path);
    take(options.lora_alpha, folder->options.lora_alpha, "lora_alpha", options.path);
    take(options.use_rslora, folder->options.use_rslora, "use_rslora", options.path);
    take(options.use_dora, folder->options.use_dora, "use_dora", options.path);
    options.target_modules = folder->options.target_modules;
    options.exclude_modules = folder->options.exclude_modules;
    options.modules_to_save = folder->options.modules_to_save;
    options.bias = folder->options.bias;
  }
  options.r = options.r.value_or(8);
  options.lora_alpha = options.lora_alpha.value_or(8);
  options.use_rslora = options.use_rslora.value_or(false);
  options.use_dora = options.use_dora.value_or(false);
  // PEFT names the heads of all classifiers (classifier, score), of which a model has one.
  options.modules_to_save = saved_modules(module, options.modules_to_save, outer, /*may_be_absent=*/folder.has_value());
  return options;
}

// The rank and lora_alpha of each layer.
void set_ranks(std::vector<TargetLayer>& layers, const LoRAOptions& options, const std::optional<PeftFolder>& folder,
               const std::string& outer) {
  const std::map<std::string, double> wanted(options.rank_pattern.begin(), options.rank_pattern.end());
  auto ranks = pattern_values(layers, wanted, "rank_pattern", outer);
  auto alphas = pattern_values(layers, options.alpha_pattern, "alpha_pattern", outer);
  if (folder) {
    ranks.insert(folder->ranks.begin(), folder->ranks.end());
    alphas = folder->alphas;
  }
  for (TargetLayer& layer : layers) {
    const auto rank = ranks.find(layer.name);
    const auto alpha = alphas.find(layer.name);
    layer.r = rank == ranks.end() ? *options.r : static_cast<int64_t>(rank->second);
    layer.lora_alpha = alpha == alphas.end() ? *options.lora_alpha : alpha->second;
  }
}

// ---- names in adapters' files --------------------------------------------------------------------------------------

using Renamed = std::vector<std::pair<std::string, std::string>>;

Renamed peft_names(const Module& module) {
  const auto* model = dynamic_cast<const HasPeftNames*>(&module);
  return model == nullptr ? Renamed() : model->peft_names();
}

std::string replaced(std::string name, const std::string& from, const std::string& to) {
  const size_t place = name.find(from);
  return place == std::string::npos ? name : name.replace(place, from.size(), to);
}

PeftFolder read_folder(const std::string& path, const Module& module) {
  PeftFolder folder = read_peft_folder(path);
  const Renamed names = peft_names(module);
  if (names.empty()) return folder;
  rename_in(folder, [&](std::string name) {
    for (const auto& [own, theirs] : names) name = replaced(std::move(name), theirs, own);
    return name;
  });
  return folder;
}

std::vector<TargetLayer> layers_to_adapt(const Module& module, const LoRAOptions& options,
                                         const std::optional<PeftFolder>& folder, const std::string& outer) {
  if (!folder) return lora_targets(module, options, outer);
  std::vector<TargetLayer> layers;
  for (const std::string& name : folder->layers) {
    layers.push_back(target_layer(module, name, options.path + "/adapter_model.safetensors "));
  }
  return layers;
}

// ---- a module that is adapted already ------------------------------------------------------------------------------

template <class T>
void check_same(const T& own, const T& before, const char* name) {
  if (own == before) return;
  throw ConfigError(std::string("LoRAOptions.") + name + ": " + ValueType<T>::write(own).text +
                    ", but the module is adapted with " + ValueType<T>::write(before).text +
                    " already. Use the same options, or call merge_lora(module) first.");
}

void check_same_ranks(const NamedLayers& adapted, const std::vector<TargetLayer>& wanted) {
  std::map<std::string, const TargetLayer*> before;
  for (const auto& [name, layer] : adapted) before[name] = &layer->target();
  for (const TargetLayer& layer : wanted) {
    check_same(layer.r, before.at(layer.name)->r, "rank_pattern");
    check_same(layer.lora_alpha, before.at(layer.name)->lora_alpha, "alpha_pattern");
  }
}

void check_same_adapter(const NamedLayers& adapted, const LoRAOptions& options,
                        const std::vector<TargetLayer>& wanted) {
  const LoRAOptions& before = *adapted.front().second->options();
  check_same(*options.r, *before.r, "r");
  check_same(*options.lora_alpha, *before.lora_alpha, "lora_alpha");
  check_same(*options.use_rslora, *before.use_rslora, "use_rslora");
  check_same(*options.use_dora, *before.use_dora, "use_dora");
  check_same(options.lora_dropout, before.lora_dropout, "lora_dropout");
  check_same(options.quantize, before.quantize, "quantize");
  check_same(options.path, before.path, "path");
  std::vector<std::string> own, other;
  for (const TargetLayer& layer : wanted) own.push_back(layer.name);
  for (const auto& item : adapted) other.push_back(item.first);
  std::sort(own.begin(), own.end());
  std::sort(other.begin(), other.end());
  if (own == other) return check_same_ranks(adapted, wanted);
  own.resize(std::min<size_t>(own.size(), 3));
  other.resize(std::min<size_t>(other.size(), 3));
  throw ConfigError("LoRAOptions.target_modules: names " + join(own) + ", …, but the module is adapted in " +
                    join(other) + ", … already. Use the same options, or call merge_lora(module) first.");
}

// ---- weights of a folder -------------------------------------------------------------------------------------------

std::string file_of(const LoRAOptions& options) {
  return options.path + "/adapter_model.safetensors";
}

// The shapes of what the model will have, by name.
std::map<std::string, std::vector<int64_t>> expected_shapes(const Module& module, const LoRAOptions& options,
                                                            const std::vector<TargetLayer>& layers) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& item : module.named_parameters()) shapes[item.key()] = item.value().sizes().vec();
  for (const TargetLayer& layer : layers) {
    shapes[layer.name + "." + layer.a_name() + ".weight"] = layer.a_shape();
    shapes[layer.name + "." + layer.b_name() + ".weight"] = layer.b_shape();
    if (*options.use_dora) shapes[layer.name + "." + kMagnitude + ".weight"] = layer.magnitude_shape();
  }
  return shapes;
}

// Of the layer that a tensor belongs to.
int64_t rank_of(const std::string& tensor, const std::vector<TargetLayer>& layers, int64_t otherwise) {
  for (const TargetLayer& layer : layers) {
    if (tensor.starts_with(layer.name + ".lora_")) return layer.r;
  }
  return otherwise;
}

// Before anything of the module is changed.
void check_folder(const Module& module, const PeftFolder& folder, const LoRAOptions& options,
                  const std::vector<TargetLayer>& layers) {
  const auto shapes = expected_shapes(module, options, layers);
  const std::string advice = " Give the model that the adapter was trained on.";
  for (const auto& [name, value] : folder.tensors) {
    const auto found = shapes.find(name);
    if (found == shapes.end()) {
      throw CheckpointError(file_of(options) + ": it has " + name + ", which the model does not have." + advice);
    }
    if (value.sizes() == at::IntArrayRef(found->second)) continue;
    throw CheckpointError(file_of(options) + ": " + name + " is " + shape_text(value.sizes()) +
                          ", and the model needs " + shape_text(found->second) + " for r " +
                          std::to_string(rank_of(name, layers, *options.r)) + "." + advice);
  }
  for (const TargetLayer& layer : layers) {
    for (const std::string& part : {layer.b_name(), std::string(*options.use_dora ? kMagnitude : "")}) {
      if (part.empty() || folder.tensors.contains(layer.name + "." + part + ".weight")) continue;
      throw CheckpointError(file_of(options) + ": it has a " + layer.a_name() + " of " + layer.name + " and no " +
                            part + " for it. Write the adapter anew.");
    }
    // PEFT sets it itself for Conv1D; it means nothing to other kinds.
    if (layer.use != WeightUse::linear || layer.is_in_out || !folder.fan_in_fan_out) continue;
    throw CheckpointError(options.path + "/adapter_config.json: fan_in_fan_out is true, and the weight of " +
                          layer.name + " is (out, in)." + advice);
  }
}

// The values of those parameters that the module has: its own before it is adapted (and maybe quantized), then the
// adapters.
void load_folder(const Module& module, const PeftFolder& folder, bool adapters) {
  const at::NoGradGuard no_grad;
  const auto parameters = module.named_parameters();
  for (const auto& [name, value] : folder.tensors) {
    if (is_adapter_parameter(name) != adapters) continue;
    at::Tensor parameter = parameters[name];
    parameter.copy_(value);
  }
}

// ---- what layers cannot have ---------------------------------------------------------------------------------------

void check_layers(const std::vector<TargetLayer>& layers, const LoRAOptions& options) {
  bool quantizes = options.quantize == Quantize::none;
  std::map<const at::TensorImpl*, std::string> names;
  for (const TargetLayer& layer : layers) {
    const at::Tensor weight = layer.weight();
    const auto [first, is_new] = names.emplace(weight.unsafeGetTensorImpl(), layer.name);
    if (!is_new) {
      throw ConfigError("LoRAOptions.target_modules: " + first->second + " and " + layer.name +
                        " share one weight, which can have one adapter. Name one of them in exclude_modules.");
    }
    if (*options.use_dora && layer.groups != 1) {
      throw ConfigError("LoRAOptions.use_dora: " + layer.name + " is a convolution in " + std::to_string(layer.groups) +
                        " groups, whose weights DoRA cannot adapt. Name it in exclude_modules.");
    }
    if (layer.r % layer.groups != 0) {
      throw ConfigError("LoRAOptions.r: " + std::to_string(layer.r) + " is not a multiple of the " +
                        std::to_string(layer.groups) + " groups of " + layer.name +
                        ". Give another r, or name it in exclude_modules.");
    }
    if (!layer.can_be_quantized()) continue;
    check_quantizable(weight.sizes(), options.quantize, layer.name);
    quantizes = true;
  }
  if (quantizes) return;
  throw ConfigError("LoRAOptions.quantize: " + enum_name(options.quantize) +
                    " holds weights of linear layers in fewer bits, and target_modules names none. Leave it out.");
}

std::set<std::string> own_parameters(const PeftFolder& folder) {
  std::set<std::string> names;
  for (const auto& item : folder.tensors) {
    if (!is_adapter_parameter(item.first)) names.insert(item.first);
  }
  return names;
}

void freeze_all_but(Module& module, const LoRAOptions& options) {
  const auto layers = lora_layers(module);
  for (auto& item : module.named_parameters()) {
    item.value().set_requires_grad(is_adapter_parameter(item.key()) || trains(item.key(), options, layers));
  }
}

// Returns the parameters that are written though they are not trained: the parameters that the adapter's folder had,
// and as in PEFT the weights of input and output embeddings of these names, if target_modules names one of them in
// full, but never quantized weights.
std::set<std::string> frozen_parameters(const NamedLayers& layers, const ResolvedLoRA& options) {
  const std::array<std::string, 2> embeddings = {"embed_tokens", "lm_head"};
  const auto& entries = options.target_modules;
  const bool is_named = std::any_of(embeddings.begin(), embeddings.end(), [&](const std::string& name) {
    return std::find(entries.begin(), entries.end(), name) != entries.end();
  });
  std::set<std::string> names = options.brought;
  for (const auto& [name, layer] : layers) {
    const bool is_one = std::any_of(embeddings.begin(), embeddings.end(), [&name = name](const auto& end) {
      return name == end || name.ends_with("." + end);
    });
    if (is_named && is_one) names.insert(name + ".weight");
    if (layer->is_quantized()) names.erase(name + ".weight");
  }
  return names;
}

}  // namespace

void check_merge(const Module& module) {
  for (const auto& [name, layer] : lora_layers(module)) {
    layer->target().check_mergeable();
    const std::string other = other_layer(module, name, *layer);
    const std::string second = other.empty() ? tied_place(module, name, *layer) : other;
    if (second.empty()) continue;
    throw Error("LoRA: the adapter of " + name + " cannot be merged: its weight is the weight of " + second +
                " too, which the adapter does not change (tied weights). Keep the adapter apart (save_to of LoRA, "
                "save_lora), or untie the model: two tensors, and tie_word_embeddings false in its config.json.");
  }
}

void merge_lora(Module& module) {
  check_merge(module);
  const at::NoGradGuard no_grad;
  for (const auto& [name, layer] : lora_layers(module)) {
    const at::Tensor value = layer->merged(layer->weight(), layer->lora_A(), layer->lora_B(), layer->magnitude());
    at::Tensor weight = layer->weight();
    layer->remove();
    weight.copy_(value);
  }
}

std::vector<std::pair<std::string, at::Tensor>> merged_parameters(const Module& module, const WholeTensor& whole) {
  check_merge(module);
  std::map<std::string, std::shared_ptr<LoRALayer>> layers;
  for (const auto& [name, layer] : lora_layers(module)) layers[weight_name(name)] = layer;
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto& item : module.named_parameters()) {
    if (is_adapter_parameter(item.key())) continue;
    at::Tensor value = full_tensor(whole, item.value());
    if (const auto found = layers.find(item.key()); found != layers.end()) {
      const LoRALayer& layer = *found->second;
      const at::Tensor a = full_tensor(whole, layer.lora_A()), b = full_tensor(whole, layer.lora_B());
      const at::Tensor magnitude = layer.magnitude().defined() ? full_tensor(whole, layer.magnitude()) : at::Tensor();
      const auto beside = [&](const at::Tensor& part) { return part.defined() ? part.to(value.device()) : part; };
      if (value.defined()) value = layer.merged(value, beside(a), beside(b), beside(magnitude));
    }
    tensors.emplace_back(item.key(), std::move(value));
  }
  return tensors;
}

void apply_lora(Module& module, const LoRAOptions& unchecked, const std::string& outer) {
  const LoRAOptions given = checked(unchecked, "LoRAOptions");
  std::optional<PeftFolder> folder;
  if (!given.path.empty()) folder = read_folder(given.path, module);
  const LoRAOptions options = resolve(given, folder, module, outer);
  auto wanted = layers_to_adapt(module, options, folder, outer);
  set_ranks(wanted, options, folder, outer);
  const auto adapted = lora_layers(module);
  if (!adapted.empty()) {
    check_same_adapter(adapted, options, wanted);
    for (const auto& item : adapted) item.second->observe_again();
    return freeze_all_but(module, options);
  }
  check_layers(wanted, options);
  if (folder) {
    check_folder(module, *folder, options, wanted);
    load_folder(module, *folder, /*adapters=*/false);
  }
  ResolvedLoRA resolved{options};
  if (folder) resolved.brought = own_parameters(*folder);
  const auto shared = std::make_shared<const ResolvedLoRA>(std::move(resolved));
  for (const TargetLayer& layer : wanted) LoRALayer::add_to(layer, shared);
  freeze_all_but(module, options);
  if (folder) load_folder(module, *folder, /*adapters=*/true);
}

void save_lora(const Module& module, const std::string& folder, const WholeTensor& whole, bool writes) {
  const auto layers = lora_layers(module);
  if (layers.empty()) throw Error("save_lora " + folder + ": the module has no adapters. Call apply_lora first.");
  PeftFolder adapter;
  adapter.options = *layers.front().second->options();
  adapter.fan_in_fan_out =
      std::any_of(layers.begin(), layers.end(), [](const auto& item) { return item.second->is_in_out(); });
  const auto& entries = adapter.options.target_modules;
  const bool is_plain = std::none_of(entries.begin(), entries.end(), [](const std::string& entry) {
    return entry == "all-linear" || is_pattern(entry);
  });
  const Renamed names = peft_names(module);
  if (!is_plain || !adapter.options.exclude_modules.empty() || !adapter.options.path.empty() || !names.empty()) {
    adapter.options.target_modules.clear();
    adapter.options.exclude_modules.clear();
    for (const auto& item : layers) adapter.options.target_modules.push_back(item.first);
  }
  const auto frozen = frozen_parameters(layers, *layers.front().second->options());
  for (const auto& item : module.named_parameters()) {
    const std::string& name = item.key();
    if (!is_adapter_parameter(name) && !frozen.contains(name) && !trains(name, adapter.options, layers)) continue;
    // PEFT has an adapted layer inside its own.
    const bool is_wrapped = is_adapted(name, "weight", layers) || is_adapted(name, "bias", layers);
    const size_t end = name.rfind('.') + 1;
    const std::string key = is_wrapped ? name.substr(0, end) + "base_layer." + name.substr(end) : name;
    adapter.tensors[key] = full_tensor(whole, item.value());
  }
  for (const auto& [name, layer] : layers) {
    const TargetLayer& target = layer->target();
    if (target.r != *adapter.options.r) adapter.ranks[name] = target.r;
    if (target.lora_alpha != *adapter.options.lora_alpha) adapter.alphas[name] = target.lora_alpha;
  }
  if (!names.empty()) {
    rename_in(adapter, [&](std::string name) {
      for (const auto& [own, theirs] : names) name = replaced(std::move(name), own, theirs);
      return name;
    });
  }
  if (writes) write_peft_folder(folder, adapter);
}

bool is_adapter_parameter(const std::string& name) {
  const std::string end = ".weight";
  return name.ends_with(end) && is_adapter_matrix(name.substr(0, name.size() - end.size()));
}

NamedLayers lora_layers(const Module& module) {
  NamedLayers layers;
  if (auto own = LoRALayer::of(module)) layers.emplace_back("", std::move(own));
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    if (auto layer = LoRALayer::of(*item.value())) layers.emplace_back(item.key(), std::move(layer));
  }
  return layers;
}

}  // namespace levin
