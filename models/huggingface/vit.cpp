#include "levin/models/huggingface/vit.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>

#include <cmath>
#include <numbers>

#include "levin/core/error.h"
#include "levin/core/module_call.h"
#include "levin/core/tensor_text.h"
#include "levin/models/huggingface/attention.h"

namespace levin::huggingface {

ViTPatches::ViTPatches(const ViTConfig& config) : stride_(config.patch_size) {
  weight_ = register_parameter("weight", at::empty({config.hidden_size, config.num_channels, stride_, stride_}));
  bias_ = register_parameter("bias", at::empty({config.hidden_size}));
}

at::Tensor ViTPatches::forward(const at::Tensor& pixels) {
  return at::conv2d(pixels, weight_, bias_, stride_).flatten(2).transpose(1, 2);
}

void ViTPatches::start(const std::string& name, at::Tensor& parameter, double deviation) {
  if (name == "bias") {
    parameter.zero_();
  } else {
    parameter.normal_(0, deviation);
  }
}

ViTEmbeddings::ViTEmbeddings(const ViTConfig& config) : dropout_(config.hidden_dropout_prob) {
  const int64_t side = config.image_size / config.patch_size;
  cls_token_ = register_parameter("cls_token", at::empty({1, 1, config.hidden_size}));
  positions_ = register_parameter("position_embeddings", at::empty({1, side * side + 1, config.hidden_size}));
  patches_ = add_layer<ViTPatches>(*add_part(*this, "patch_embeddings"), "projection", config);
}

at::Tensor ViTEmbeddings::forward(const at::Tensor& pixels) {
  const at::Tensor patches = call(patches_, pixels.to(cls_token_.scalar_type()));
  const at::Tensor first = cls_token_.expand({patches.size(0), 1, patches.size(2)}).to(patches.scalar_type());
  return at::dropout(at::cat({first, patches}, 1) + positions_, dropout_, is_training());
}

// Python cuts these at -2 and 2, far outside of any deviation in use, by the inverse of the normal distribution.
void ViTEmbeddings::start(const std::string&, at::Tensor& parameter, double deviation) {
  const double cut = std::erf(2 / (deviation * std::numbers::sqrt2));
  parameter.uniform_(-cut, cut).erfinv_().mul_(deviation * std::numbers::sqrt2).clamp_(-2, 2);
}

ViTLayer::ViTLayer(const ViTConfig& config)
    : heads_(config.num_attention_heads),
      attention_dropout_(config.attention_probs_dropout_prob),
      dropout_(config.hidden_dropout_prob),
      act_(activation(config.hidden_act)) {
  const int64_t width = config.hidden_size;
  const auto attention = add_part(*this, "attention");
  const auto inner = add_part(*attention, "attention");
  query_ = add_layer<Linear>(*inner, "query", width, width, config.qkv_bias);
  key_ = add_layer<Linear>(*inner, "key", width, width, config.qkv_bias);
  value_ = add_layer<Linear>(*inner, "value", width, width, config.qkv_bias);
  attended_ = add_layer<Linear>(*add_part(*attention, "output"), "dense", width, width);
  wide_ = add_layer<Linear>(*add_part(*this, "intermediate"), "dense", width, config.intermediate_size);
  narrow_ = add_layer<Linear>(*add_part(*this, "output"), "dense", config.intermediate_size, width);
  norm_before_ = add_layer<LayerNorm>(*this, "layernorm_before", width, config.layer_norm_eps);
  norm_after_ = add_layer<LayerNorm>(*this, "layernorm_after", width, config.layer_norm_eps);
}

at::Tensor ViTLayer::forward(const at::Tensor& x) {
  const at::Tensor normed = call(norm_before_, x);
  const auto heads_of = [&](const std::shared_ptr<Linear>& layer) { return split_heads(call(layer, normed), heads_); };
  const at::Tensor seen = attend(heads_of(query_), heads_of(key_), heads_of(value_), /*mask=*/{},
                                 {.dropout = is_training() ? attention_dropout_ : 0.0});
  const at::Tensor after = at::dropout(call(attended_, seen), dropout_, is_training()) + x;
  const at::Tensor hidden = call(narrow_, act_(call(wide_, call(norm_after_, after))));
  return at::dropout(hidden, dropout_, is_training()) + after;
}

ViTModel::ViTModel(const PretrainedConfig& config, bool add_pooling_layer)
    : PretrainedModel(config), config_(read_vit_config(config)), pooler_act_(activation(config_.pooler_act)) {
  set_prefix("vit");
  embeddings_ = add_layer<ViTEmbeddings>(*this, "embeddings", config_);
  layers_ = add_layers<ViTLayer>(*add_part(*this, "encoder"), "layer", config_.num_hidden_layers, config_);
  norm_ = add_layer<LayerNorm>(*this, "layernorm", config_.hidden_size, config_.layer_norm_eps);
  if (!add_pooling_layer) return;
  pooler_ = add_layer<Linear>(*add_part(*this, "pooler"), "dense", config_.hidden_size,
                              config_.pooler_output_size.value_or(config_.hidden_size));
}

std::vector<std::pair<std::string, std::string>> ViTModel::peft_names() const {
  return {{"encoder.layer.", "layers."},
          {".attention.attention.query", ".attention.q_proj"},
          {".attention.attention.key", ".attention.k_proj"},
          {".attention.attention.value", ".attention.v_proj"},
          {".attention.output.dense", ".attention.o_proj"},
          {".intermediate.dense", ".mlp.fc1"},
          {".output.dense", ".mlp.fc2"}};
}

ModelOutput ViTModel::forward(const ModelInputs& inputs) {
  const at::Tensor& pixels = inputs.pixel_values;
  if (!pixels.defined()) throw Error("vit: it reads images: set pixel_values, (batch, channels, height, width).");
  const std::vector<int64_t> wanted{config_.num_channels, config_.image_size, config_.image_size};
  if (pixels.dim() != 4 || pixels.sizes().slice(1) != at::IntArrayRef(wanted)) {
    throw Error("vit: images must be " + shape_text(wanted) + " as in the model's config.json, got a batch of " +
                shape_text(pixels.sizes()) + ". Set the data's size.");
  }
  ModelOutput output;
  output.last_hidden_state = call(norm_, call_chain(layers_, call(embeddings_, pixels)));
  if (pooler_ != nullptr) output.pooler_output = pooler_act_(call(pooler_, output.last_hidden_state.select(1, 0)));
  return output;
}

}  // namespace levin::huggingface
