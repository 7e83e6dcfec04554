#include "levin/adapters/layer_kind.h"

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>

#include "levin/adapters/lora_layer.h"

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

}  // namespace levin
