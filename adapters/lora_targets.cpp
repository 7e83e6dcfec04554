#include "levin/adapters/lora_targets.h"

#include <fnmatch.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <set>
#include <variant>

#include "levin/adapters/inner_model.h"
#include "levin/adapters/lora_layer.h"
#include "levin/core/options/error.h"
#include "levin/core/options/value.h"

namespace levin {

namespace {

using torch::nn::Module;
using Kind = std::variant<TargetLayer, std::string>;

template <class Class>
const Class* as(const Module& module) {
  return dynamic_cast<const Class*>(&module);
}

bool is_transformers_conv1d(const Module& module) {
  return module.name().ends_with("Conv1D");
}

bool is_refused_class(const Module& module) {
  return as<torch::nn::EmbeddingBagImpl>(module) != nullptr || as<torch::nn::ConvTranspose1dImpl>(module) != nullptr ||
         as<torch::nn::ConvTranspose2dImpl>(module) != nullptr || as<torch::nn::ConvTranspose3dImpl>(module) != nullptr;
}

std::string no_layer(const std::string& name, const Module& module) {
  return name + ", a " + module.name() + ", and LoRA adapts linear layers, embeddings and convolutions.";
}

// A class of the user's: (out, in) unless its bias says otherwise.
bool is_in_out(const Module& module, const at::Tensor& weight) {
  const auto own = module.named_parameters(/*recurse=*/false);
  const at::Tensor* bias = own.find("bias");
  const bool fits_in_out =
      bias != nullptr && bias->defined() && bias->numel() == weight.size(1) && bias->numel() != weight.size(0);
  return is_transformers_conv1d(module) || fits_in_out;
}

// One of LibTorch's convolutions.
template <class Class>
Kind convolution(const std::string& name, Module& module, const Class& known) {
  const auto& options = known.options;
  const std::string start = name + ", a " + module.name() + " with ";
  const std::string end = ", and PEFT's adapters of convolutions cannot have it. Name it in exclude_modules.";
  if (!std::holds_alternative<torch::enumtype::kZeros>(options.padding_mode())) {
    return start + "a padding_mode other than zeros" + end;
  }
  const auto& dilation = *options.dilation();
  const bool is_dilated = std::any_of(dilation.begin(), dilation.end(), [](int64_t step) { return step != 1; });
  if (is_dilated && std::holds_alternative<torch::enumtype::kSame>(options.padding())) {
    return start + "padding \"same\" and a dilation" + end;
  }
  return TargetLayer{.name = name, .module = &module, .use = WeightUse::convolution, .groups = options.groups()};
}

Kind of_unknown_class(const std::string& name, Module& module, const at::Tensor& weight) {
  TargetLayer layer{.name = name, .module = &module};
  const auto* self = as<KnowsWeightUse>(module);
  const auto known = self == nullptr ? std::nullopt : self->weight_use();
  const bool is_kernel = weight.dim() >= 3 && weight.dim() <= 5;
  if (known) {
    layer.use = known->use;
    layer.groups = known->groups;
  } else if (is_kernel) {
    layer.use = WeightUse::convolution;
  }
  const bool fits = layer.use == WeightUse::convolution ? is_kernel : weight.dim() == 2;
  if (layer.use == WeightUse::other || !fits) return no_layer(name, module);
  layer.is_in_out = layer.use == WeightUse::linear && is_in_out(module, weight);
  return layer;
}

constexpr size_t kMaxNames = 12;  // in a message

bool is_part_of(const std::string& name, const std::string& outer) {
  return name == outer || name.starts_with(outer + ".");
}

bool matches(const std::string& entry, const std::string& name, const std::string& outer) {
  if (is_pattern(entry)) {
    return ::fnmatch(entry.c_str(), name.c_str(), 0) == 0 || ::fnmatch(entry.c_str(), (outer + name).c_str(), 0) == 0;
  }
  return name == entry || name.ends_with("." + entry) || (!outer.empty() && outer + name == entry);
}

// How PEFT finds modules_to_save: "pre_classifier" with "classifier".
bool has_end(const std::string& name, const std::string& entry) {
  return !entry.empty() && name.ends_with(entry);
}

bool matches_any(const std::vector<std::string>& entries, const std::string& name, const std::string& outer) {
  return std::any_of(entries.begin(), entries.end(), [&](const auto& entry) { return matches(entry, name, outer); });
}

bool is_head(const std::string& name) {
  const auto is_one = [&](const std::string& head) { return is_part_of(name, head); };
  return is_one("lm_head") || is_one("classifier") || is_one("score");
}

// Returns the names of modules, without the modules that LoRA has added.
std::vector<std::string> module_names(const Module& module) {
  std::vector<std::string> names;
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    const std::string& name = item.key();
    if (!is_adapter_matrix(name) && !name.ends_with("quantized")) names.push_back(name);
  }
  return names;
}

std::string last_part(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? name : name.substr(dot + 1);
}

// The last parts of some layers' names, each once.
std::vector<std::string> ends_of(const std::vector<TargetLayer>& layers) {
  std::vector<std::string> ends;
  for (const TargetLayer& layer : layers) {
    const std::string end = last_part(layer.name);
    if (std::find(ends.begin(), ends.end(), end) == ends.end()) ends.push_back(end);
  }
  return ends;
}

std::string list_of(std::vector<std::string> names) {
  const bool cut = names.size() > kMaxNames;
  if (cut) names.resize(kMaxNames);
  return join(names) + (cut ? ", …" : "");
}

// Their last parts; in full where a part is a number, as in a torch::nn::Sequential, which says nothing.
std::string names_of(const std::vector<TargetLayer>& layers, const std::string& outer, bool with_example) {
  const std::vector<std::string> ends = ends_of(layers);
  const auto is_number = [](const std::string& end) {
    return end.find_first_not_of("0123456789") == std::string::npos;
  };
  if (std::none_of(ends.begin(), ends.end(), is_number)) {
    return list_of(ends) + (with_example ? "; in full as " + layers.front().name : "");
  }
  std::vector<std::string> full;
  for (const TargetLayer& layer : layers) full.push_back(outer + layer.name);
  return list_of(full);
}

// Embeddings and convolutions of LibTorch's classes.
std::vector<TargetLayer> other_layers(const Module& module) {
  std::vector<TargetLayer> layers;
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    if (!is_known_layer(*item.value()) || is_linear_layer(*item.value())) continue;
    const auto kind = layer_kind(item.key(), *item.value());
    if (const auto* layer = std::get_if<TargetLayer>(&kind)) layers.push_back(*layer);
  }
  return layers;
}

// " Did you mean …? Linear layers: query, key, value, dense; in full as encoder.layer.0.attention.self.query.
// Embeddings and convolutions: word_embeddings."
std::string known_layers(const Module& module, const std::string& entry, const std::string& outer) {
  const auto linear = linear_layers(module), others = other_layers(module);
  if (linear.empty() && others.empty()) {
    return " The module has no torch::nn::Linear; name layers of other classes one by one.";
  }
  std::vector<std::string> ends = ends_of(linear), full;
  for (const auto* layers : {&linear, &others}) {
    for (const TargetLayer& layer : *layers) full.push_back(layer.name);
  }
  const auto other_ends = ends_of(others);
  std::string text;
  if (!linear.empty()) text = " Linear layers: " + names_of(linear, outer, /*with_example=*/true) + ".";
  if (!others.empty()) text += " Embeddings and convolutions: " + names_of(others, outer, /*with_example=*/false) + ".";
  ends.insert(ends.end(), other_ends.begin(), other_ends.end());
  const std::string hint = did_you_mean(entry, ends);
  return (hint.empty() ? did_you_mean(entry, full) : hint) + text;
}

class Targets {
 public:
  Targets(const Module& module, const LoRAOptions& options, const std::string& outer)
      : module_(module), options_(options), outer_(outer), modules_(module.named_modules("", false)) {}

  std::vector<TargetLayer> find() {
    if (options_.target_modules.empty()) {
      problems_.add({}, "LoRAOptions.target_modules",
                    "names no layer. Give names, patterns or all-linear." + known_layers(module_, "", outer_));
    }
    for (size_t k = 0; k < options_.target_modules.size(); ++k) add_entry(k);
    for (size_t k = 0; k < options_.exclude_modules.size(); ++k) check_excluded(k);
    problems_.throw_if_any();
    return in_order();
  }

 private:
  void add_entry(size_t k) {
    const std::string& entry = options_.target_modules[k];
    const std::string here = detail::index_path("LoRAOptions.target_modules", k);
    if (entry == "all-linear") return add_all();
    bool has_match = false, has_layer = false;
    std::string problem;  // of a match that can neither be adapted nor is excluded
    for (const std::string& name : module_names(module_)) {
      if (!matches(entry, name, outer_)) continue;
      has_match = true;
      const auto kind = layer_kind(name, *modules_[name]);
      const auto* why = std::get_if<std::string>(&kind);
      if (why != nullptr && !matches_any(options_.exclude_modules, name, outer_)) {
        problem = *why;
        continue;
      }
      has_layer = true;
      if (why == nullptr) found_.insert(name);
    }
    if (!has_match) {
      problems_.add({}, here, "no layer's name matches \"" + entry + "\"." + known_layers(module_, entry, outer_));
    } else if (!has_layer || (!problem.empty() && !is_pattern(entry))) {
      problems_.add({}, here, "\"" + entry + "\" matches " + problem + known_layers(module_, entry, outer_));
    }
  }

  void add_all() {
    for (const TargetLayer& layer : linear_layers(module_)) {
      if (!is_head(layer.name)) found_.insert(layer.name);
    }
  }

  void check_excluded(size_t k) {
    const std::string& entry = options_.exclude_modules[k];
    const auto names = module_names(module_);
    if (std::any_of(names.begin(), names.end(), [&](const auto& name) { return matches(entry, name, outer_); })) return;
    problems_.add({}, detail::index_path("LoRAOptions.exclude_modules", k),
                  "no module's name matches \"" + entry + "\"." + did_you_mean(entry, names));
  }

  std::vector<TargetLayer> in_order() {
    const auto kept = saved_modules(module_, options_.modules_to_save, outer_);
    const auto is_kept = [&](const std::string& name) {
      return std::any_of(kept.begin(), kept.end(), [&](const auto& one) { return is_part_of(name, one); });
    };
    std::vector<TargetLayer> layers;
    for (const std::string& name : module_names(module_)) {
      if (!found_.contains(name) || is_kept(name) || matches_any(options_.exclude_modules, name, outer_)) continue;
      layers.push_back(std::get<TargetLayer>(layer_kind(name, *modules_[name])));
    }
    if (!layers.empty()) return layers;
    throw ConfigError(
        "LoRAOptions.target_modules: every layer that it names is in exclude_modules, in modules_to_save or a head, "
        "so nothing would be adapted." +
        known_layers(module_, "", outer_));
  }

  const Module& module_;
  const LoRAOptions& options_;
  const std::string& outer_;
  torch::OrderedDict<std::string, std::shared_ptr<Module>> modules_;
  std::set<std::string> found_;
  Problems problems_;
};

}  // namespace

bool is_linear_layer(const Module& module) {
  const auto own = module.named_parameters(/*recurse=*/false);
  const at::Tensor* weight = own.find("weight");
  const bool is_known = as<torch::nn::LinearImpl>(module) != nullptr || is_transformers_conv1d(module);
  return is_known && weight != nullptr && weight->defined() && weight->dim() == 2;
}

bool is_known_layer(const Module& module) {
  return is_linear_layer(module) || as<torch::nn::EmbeddingImpl>(module) != nullptr ||
         as<torch::nn::Conv1dImpl>(module) != nullptr || as<torch::nn::Conv2dImpl>(module) != nullptr ||
         as<torch::nn::Conv3dImpl>(module) != nullptr;
}

Kind layer_kind(const std::string& name, Module& module) {
  if (const auto adapted = LoRALayer::of(module)) {
    TargetLayer layer = adapted->target();
    layer.name = name;
    return layer;
  }
  const auto own = module.named_parameters(/*recurse=*/false);
  const at::Tensor* weight = own.find("weight");
  if (weight == nullptr || !weight->defined() || is_refused_class(module)) return no_layer(name, module);
  if (const auto* embedding = as<torch::nn::EmbeddingImpl>(module)) {
    return TargetLayer{.name = name,
                       .module = &module,
                       .use = WeightUse::embedding,
                       .max_norm = embedding->options.max_norm(),
                       .norm_type = embedding->options.norm_type()};
  }
  if (const auto* one = as<torch::nn::Conv1dImpl>(module)) return convolution(name, module, *one);
  if (const auto* two = as<torch::nn::Conv2dImpl>(module)) return convolution(name, module, *two);
  if (const auto* three = as<torch::nn::Conv3dImpl>(module)) return convolution(name, module, *three);
  return of_unknown_class(name, module, *weight);
}

InnerModel inner_model(torch::nn::Module& module) {
  const auto children = module.named_children();
  const bool is_wrapper = children.size() == 1 && module.named_parameters(/*recurse=*/false).is_empty();
  if (!is_wrapper || LoRALayer::of(*children[0].value()) != nullptr) return {&module};
  if (children[0].value()->named_modules("", /*include_self=*/false).is_empty()) return {&module};  // a layer
  return {children[0].value().get(), children[0].key() + "."};
}

bool is_pattern(const std::string& entry) {
  return entry.find_first_of("*?[") != std::string::npos;
}

std::vector<TargetLayer> linear_layers(const Module& module) {
  std::vector<TargetLayer> layers;
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    if (!is_linear_layer(*item.value())) continue;
    layers.push_back(std::get<TargetLayer>(layer_kind(item.key(), *item.value())));
  }
  return layers;
}

TargetLayer target_layer(const Module& module, const std::string& name, const std::string& where) {
  const auto modules = module.named_modules("", /*include_self=*/false);
  const auto* found = modules.find(name);
  if (found == nullptr) {
    throw ConfigError(where + "adapts " + name + ", which the model does not have." + known_layers(module, name, ""));
  }
  const auto kind = layer_kind(name, **found);
  if (const auto* layer = std::get_if<TargetLayer>(&kind)) return *layer;
  throw ConfigError(where + "adapts " + std::get<std::string>(kind));
}

std::vector<TargetLayer> lora_targets(const Module& module, const LoRAOptions& options, const std::string& outer) {
  return Targets(module, options, outer).find();
}

std::vector<std::string> saved_modules(const Module& module, const std::vector<std::string>& entries,
                                       const std::string& outer, bool may_be_absent) {
  std::vector<std::string> named;
  Problems problems;
  const auto names = module_names(module);
  for (size_t k = 0; k < entries.size(); ++k) {
    const size_t before = named.size();
    for (const std::string& name : names) {
      if (matches(entries[k], name, outer) || has_end(name, entries[k])) named.push_back(name);
    }
    if (named.size() > before || may_be_absent) continue;
    problems.add(
        {}, detail::index_path("LoRAOptions.modules_to_save", k),
        "no module's name matches \"" + entries[k] + "\"." + did_you_mean(entries[k], names) + " Modules: " +
            join({names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kMaxNames))}) +
            (names.size() > kMaxNames ? ", …." : "."));
  }
  problems.throw_if_any();
  // When PEFT reads the adapter, it also finds modules whose names end with a full name.
  std::vector<std::string> found;
  for (const std::string& name : names) {
    const bool is_named = std::any_of(named.begin(), named.end(), [&](const auto& o) { return has_end(name, o); });
    const bool is_inside = std::any_of(found.begin(), found.end(), [&](const auto& o) { return is_part_of(name, o); });
    if (is_named && !is_inside) found.push_back(name);
  }
  return found;
}

std::map<std::string, double> pattern_values(const std::vector<TargetLayer>& layers,
                                             const std::map<std::string, double>& pattern, const std::string& option,
                                             const std::string& outer) {
  std::map<std::string, double> values;
  Problems problems;
  for (const auto& [entry, value] : pattern) {
    const std::string here = join_path("LoRAOptions." + option, entry);
    bool has_match = false;
    for (const TargetLayer& layer : layers) {
      if (!matches(entry, layer.name, outer)) continue;
      has_match = true;
      const auto [first, is_new] = values.emplace(layer.name, value);
      if (is_new || first->second == value) continue;
      problems.add({}, here,
                   number_text(value) + " for " + layer.name + ", to which a different name gives " +
                       number_text(first->second) + ". Name it once.");
      break;
    }
    if (has_match) continue;
    problems.add(
        {}, here,
        "no adapted layer's name matches it. Adapted: " + names_of(layers, outer, /*with_example=*/true) + ".");
  }
  problems.throw_if_any();
  return values;
}

}  // namespace levin
