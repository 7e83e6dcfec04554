// Adapters merged into the weights of their layers.
#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <map>
#include <variant>

#include "levin/adapters/layer_kind.h"
#include "levin/adapters/lora.h"
#include "levin/adapters/lora_layer.h"
#include "levin/core/error.h"

namespace levin {

namespace {

using torch::nn::Module;

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

at::Tensor gathered(const WholeTensor& whole, const at::Tensor& parameter) {
  return whole ? whole(parameter) : parameter.detach();
}

}  // namespace

void check_merge(const Module& module) {
  for (const auto& [name, layer] : lora_layers(module)) {
    layer->target().check_mergeable();
    const std::string other = other_layer(module, name, *layer);
    const std::string second = other.empty() ? tied_place(module, name, *layer) : other;
    if (second.empty()) continue;
    throw Error("LoRA: the adapter of " + name + " cannot be merged: its weight is that of " + second +
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
    at::Tensor value = gathered(whole, item.value());
    if (const auto found = layers.find(item.key()); found != layers.end()) {
      const LoRALayer& layer = *found->second;
      const at::Tensor a = gathered(whole, layer.lora_A()), b = gathered(whole, layer.lora_B());
      const at::Tensor magnitude = layer.magnitude().defined() ? gathered(whole, layer.magnitude()) : at::Tensor();
      const auto beside = [&](const at::Tensor& part) { return part.defined() ? part.to(value.device()) : part; };
      if (value.defined()) value = layer.merged(value, beside(a), beside(b), beside(magnitude));
    }
    tensors.emplace_back(item.key(), std::move(value));
  }
  return tensors;
}

}  // namespace levin
