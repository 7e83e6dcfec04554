#include "levin/adapters/lora_targets.h"

#include <fnmatch.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <optional>
#include <set>

#include "levin/core/error.h"
#include "levin/core/value.h"

namespace levin {

namespace {

using torch::nn::Module;

constexpr size_t kMostNames = 12;  // in a message

bool is_matrix(const at::Tensor* weight) {
  return weight != nullptr && weight->defined() && weight->dim() == 2;
}

bool is_conv1d(const Module& module) {
  return module.name().ends_with("Conv1D");
}

bool is_linear(const Module& module) {
  const auto own = module.named_parameters(/*recurse=*/false);
  const bool is_known = dynamic_cast<const torch::nn::LinearImpl*>(&module) != nullptr || is_conv1d(module);
  return is_known && is_matrix(own.find("weight"));
}

// A class of the user's: (out, in) unless its bias says otherwise.
std::optional<LinearLayer> as_layer(const std::string& name, Module& module) {
  const auto own = module.named_parameters(/*recurse=*/false);
  const at::Tensor* weight = own.find("weight");
  if (!is_matrix(weight) || dynamic_cast<const torch::nn::EmbeddingImpl*>(&module) != nullptr) return std::nullopt;
  if (LoRALayer::of(module) != nullptr) return LinearLayer{name, &module, LoRALayer::of(module)->is_in_out()};
  const at::Tensor* bias = own.find("bias");
  const bool fits_in_out =
      bias != nullptr && bias->defined() && bias->numel() == weight->size(1) && bias->numel() != weight->size(0);
  return LinearLayer{name, &module, is_conv1d(module) || fits_in_out};
}

bool is_part_of(const std::string& name, const std::string& outer) {
  return name == outer || name.starts_with(outer + ".");
}

bool matches(const std::string& entry, const std::string& name, const std::string& outer) {
  if (is_pattern(entry)) {
    return ::fnmatch(entry.c_str(), name.c_str(), 0) == 0 || ::fnmatch(entry.c_str(), (outer + name).c_str(), 0) == 0;
  }
  return name == entry || name.ends_with("." + entry) || (!outer.empty() && outer + name == entry);
}

bool matches_any(const std::vector<std::string>& entries, const std::string& name, const std::string& outer) {
  return std::any_of(entries.begin(), entries.end(), [&](const auto& entry) { return matches(entry, name, outer); });
}

bool is_head(const std::string& name) {
  const auto is_one = [&](const std::string& head) { return is_part_of(name, head); };
  return is_one("lm_head") || is_one("classifier") || is_one("score");
}

// The names of modules without those that LoRA has added.
std::vector<std::string> module_names(const Module& module) {
  std::vector<std::string> names;
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    const std::string& name = item.key();
    const bool is_added = name.ends_with("lora_A") || name.ends_with("lora_B") || name.ends_with("quantized");
    if (!is_added) names.push_back(name);
  }
  return names;
}

std::string last_part(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? name : name.substr(dot + 1);
}

// " Did you mean …? Linear layers: query, key, value, dense, in full as encoder.layer.0.attention.self.query."
std::string known_layers(const Module& module, const std::string& entry) {
  std::vector<std::string> ends, full;
  for (const LinearLayer& layer : linear_layers(module)) {
    full.push_back(layer.name);
    const std::string end = last_part(layer.name);
    if (std::find(ends.begin(), ends.end(), end) == ends.end()) ends.push_back(end);
  }
  if (full.empty()) return " The module has no torch::nn::Linear; name layers of other classes one by one.";
  std::string hint = did_you_mean(entry, ends);
  if (hint.empty()) hint = did_you_mean(entry, full);
  const bool cut = ends.size() > kMostNames;
  if (cut) ends.resize(kMostNames);
  return hint + " Linear layers: " + join(ends) + (cut ? ", …" : "") + "; in full as " + full.front() + ".";
}

class Targets {
 public:
  Targets(const Module& module, const LoRAOptions& options, const std::string& outer)
      : module_(module), options_(options), outer_(outer), modules_(module.named_modules("", false)) {}

  std::vector<LinearLayer> find() {
    if (options_.target_modules.empty()) {
      problems_.add({}, "LoRAOptions.target_modules",
                    "names no layer. Give names, patterns or all-linear." + known_layers(module_, ""));
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
    std::string other;
    for (const std::string& name : module_names(module_)) {
      if (!matches(entry, name, outer_)) continue;
      has_match = true;
      Module& module = *modules_[name];
      const auto layer = as_layer(name, module);
      if (layer) found_.insert(name);
      if (!layer) other = name;
      has_layer = has_layer || layer.has_value();
    }
    if (!has_match) {
      problems_.add({}, here, "no layer's name matches \"" + entry + "\"." + known_layers(module_, entry));
    } else if (!has_layer || (!other.empty() && !is_pattern(entry))) {
      problems_.add({}, here,
                    "\"" + entry + "\" matches " + other + ", a " + modules_[other]->name() +
                        ", and LoRA adapts linear layers." + known_layers(module_, entry));
    }
  }

  void add_all() {
    for (const LinearLayer& layer : linear_layers(module_)) {
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

  std::vector<LinearLayer> in_order() {
    const auto kept = saved_modules(module_, options_.modules_to_save, outer_);
    const auto is_kept = [&](const std::string& name) {
      return std::any_of(kept.begin(), kept.end(), [&](const auto& one) { return is_part_of(name, one); });
    };
    std::vector<LinearLayer> layers;
    for (const std::string& name : module_names(module_)) {
      if (!found_.contains(name) || is_kept(name) || matches_any(options_.exclude_modules, name, outer_)) continue;
      layers.push_back(*as_layer(name, *modules_[name]));
    }
    if (!layers.empty()) return layers;
    throw ConfigError(
        "LoRAOptions.target_modules: every layer that it names is in exclude_modules, in modules_to_save or a head, "
        "so nothing would be adapted." +
        known_layers(module_, ""));
  }

  const Module& module_;
  const LoRAOptions& options_;
  const std::string& outer_;
  torch::OrderedDict<std::string, std::shared_ptr<Module>> modules_;
  std::set<std::string> found_;
  Problems problems_;
};

}  // namespace

bool is_pattern(const std::string& entry) {
  return entry.find_first_of("*?[") != std::string::npos;
}

std::vector<LinearLayer> linear_layers(const Module& module) {
  std::vector<LinearLayer> layers;
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    if (is_linear(*item.value())) layers.push_back(*as_layer(item.key(), *item.value()));
  }
  return layers;
}

LinearLayer linear_layer(const Module& module, const std::string& name, const std::string& where) {
  const auto modules = module.named_modules("", /*include_self=*/false);
  const auto* found = modules.find(name);
  if (found == nullptr) {
    throw ConfigError(where + "adapts " + name + ", which the model does not have." + known_layers(module, name));
  }
  if (auto layer = as_layer(name, **found)) return *layer;
  throw ConfigError(where + "adapts " + name + ", a " + (*found)->name() + ", and LoRA adapts linear layers.");
}

std::vector<LinearLayer> lora_targets(const Module& module, const LoRAOptions& options, const std::string& outer) {
  return Targets(module, options, outer).find();
}

std::vector<std::string> saved_modules(const Module& module, const std::vector<std::string>& entries,
                                       const std::string& outer) {
  std::vector<std::string> found;
  Problems problems;
  const auto names = module_names(module);
  for (size_t k = 0; k < entries.size(); ++k) {
    bool has_match = false;
    for (const std::string& name : names) {
      if (!matches(entries[k], name, outer)) continue;
      has_match = true;
      const bool is_inside =
          std::any_of(found.begin(), found.end(), [&](const auto& o) { return is_part_of(name, o); });
      if (!is_inside) found.push_back(name);
    }
    if (has_match) continue;
    problems.add(
        {}, detail::index_path("LoRAOptions.modules_to_save", k),
        "no module's name matches \"" + entries[k] + "\"." + did_you_mean(entries[k], names) + " Modules: " +
            join({names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kMostNames))}) +
            (names.size() > kMostNames ? ", …." : "."));
  }
  problems.throw_if_any();
  return found;
}

}  // namespace levin
