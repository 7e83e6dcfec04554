#include "levin/adapters/saved_lora.h"

#include <torch/nn/module.h>

#include <cmath>
#include <limits>
#include <set>

#include "levin/adapters/lora.h"
#include "levin/adapters/lora_layer.h"
#include "levin/adapters/peft_folder.h"
#include "levin/core/options/error.h"

namespace levin {

namespace {

constexpr std::string_view kMark = ".lora_";

// "h.0.attn" of "h.0.attn.lora_A.weight".
std::string adapted_layer(const std::string& adapter) {
  return adapter.substr(0, adapter.rfind(kMark));
}

// Its first dimension is r.
bool is_down_matrix(const std::string& adapter) {
  const std::string_view part = std::string_view(adapter).substr(adapter.rfind(kMark) + kMark.size());
  return part.starts_with("A") || part.starts_with("embedding_A");
}

Quantize quantize_of(at::ScalarType weight) {
  if (weight == at::kChar) return Quantize::int8;
  return weight == at::kByte ? Quantize::nf4 : Quantize::none;
}

// A pattern that the whole of this name matches and no other: a name alone would match the ends of names, too.
std::string pattern_of(const std::string& name) {
  return "[" + name.substr(0, 1) + "]" + name.substr(1);
}

// Returns the lora_alpha whose quotient with r is exactly `scaling`, so that outputs are bitwise identical to the
// run's.
double alpha_for(double scaling, int64_t r) {
  const auto rank = static_cast<double>(r);
  const double product = scaling * rank;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const double alpha : {std::nextafter(product, 0.0), std::nextafter(product, infinity)}) {
    if (product / rank != scaling && alpha / rank == scaling) return alpha;
  }
  return product;
}

std::optional<double> scaling_of(const LoRAScalings& scalings, const std::string& layer) {
  if (const auto* one = std::get_if<double>(&scalings)) return *one;
  const auto& each = std::get<std::map<std::string, double>>(scalings);
  const auto found = each.find(layer);
  return found == each.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace

LoRAScalings lora_scalings(const torch::nn::Module& module) {
  std::map<std::string, double> scalings;
  std::set<double> values;
  for (const auto& [name, layer] : lora_layers(module)) values.insert(scalings[name] = layer->scaling());
  if (values.size() == 1) return *values.begin();
  return scalings;
}

std::optional<SavedLoRA> find_saved_lora(const SavedShapes& tensors) {
  SavedLoRA saved;
  std::set<std::string> layers;
  for (const auto& [name, form] : tensors) {
    if (!is_adapter_parameter(name) || name.rfind(kMark) == std::string::npos) continue;
    layers.insert(adapted_layer(name));
    if (is_down_matrix(name) && !form.second.empty()) saved.ranks[adapted_layer(name)] = form.second[0];
    if (name.ends_with(std::string(kMagnitude) + ".weight")) saved.use_dora = true;
  }
  if (layers.empty()) return std::nullopt;
  saved.layers.assign(layers.begin(), layers.end());
  const auto weight = tensors.find(saved.layers.front() + ".weight");
  if (weight != tensors.end()) saved.quantize = quantize_of(weight->second.first);
  return saved;
}

void apply_saved_lora(torch::nn::Module& module, const SavedLoRA& saved, const LoRAScalings& scalings) {
  if (!lora_layers(module).empty()) return;
  const auto modules = module.named_modules("", /*include_self=*/false);
  for (const std::string& layer : saved.layers) {
    if (modules.contains(layer)) continue;
    throw CheckpointError("it has LoRA's adapters of " + cut_text(layer) +
                          ", which the module does not have. Make the module with the options of the run");
  }
  LoRAOptions options{.use_dora = saved.use_dora, .quantize = saved.quantize};
  for (const std::string& layer : saved.layers) {
    const auto rank = saved.ranks.find(layer);
    const auto scaling = scaling_of(scalings, layer);
    if (rank == saved.ranks.end() || rank->second < 1 || !scaling) {
      throw CheckpointError("it has no whole adapter of " + cut_text(layer) + ": its lora_A or its scaling is missing");
    }
    options.target_modules.push_back(pattern_of(layer));
    options.rank_pattern[pattern_of(layer)] = rank->second;
    options.alpha_pattern[pattern_of(layer)] = alpha_for(*scaling, rank->second);
  }
  apply_lora(module, options);
}

double run_scaling(const LoRAOptions& options) {
  LoRAOptions resolved = options;
  if (!options.path.empty()) resolved = read_peft_folder(options.path).options;
  resolved.r = resolved.r.value_or(8);
  resolved.lora_alpha = resolved.lora_alpha.value_or(8);
  resolved.use_rslora = resolved.use_rslora.value_or(false);
  return lora_scaling(resolved);
}

}  // namespace levin
