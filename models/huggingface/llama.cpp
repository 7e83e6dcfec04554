#include "levin/models/huggingface/llama.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/dropout.h>

#include <cmath>

#include "levin/core/module_call.h"
#include "levin/models/huggingface/attention.h"
#include "levin/models/huggingface/inputs.h"

namespace levin::huggingface {

namespace {

// As the type holds it.
double rounded(double value, at::ScalarType type) {
  if (type == at::kBFloat16) return static_cast<c10::BFloat16>(static_cast<float>(value));
  return type == at::kHalf ? static_cast<double>(static_cast<c10::Half>(static_cast<float>(value))) : value;
}

}  // namespace

LlamaLayer::LlamaLayer(const LlamaConfig& config, int64_t number)
    : heads_(config.num_attention_heads),
      key_value_heads_(config.key_value_heads()),
      width_of_head_(config.width_of_head()),
      dropout_(config.attention_dropout),
      residual_dropout_(config.resid_pdrop),
      has_window_(config.has_window.at(static_cast<size_t>(number))),
      act_(activation(config.hidden_act)) {
  const int64_t width = config.hidden_size, inner = config.intermediate_size, head = config.width_of_head();
  const auto attention = add_part(*this, "self_attn");
  if (config.has_fused_layers) {
    qkv_proj_ = add_layer<Linear>(*attention, "qkv_proj", width, (heads_ + 2 * key_value_heads_) * head, false);
  } else {
    q_proj_ = add_layer<Linear>(*attention, "q_proj", width, heads_ * head, config.qkv_bias);
    k_proj_ = add_layer<Linear>(*attention, "k_proj", width, key_value_heads_ * head, config.qkv_bias);
    v_proj_ = add_layer<Linear>(*attention, "v_proj", width, key_value_heads_ * head, config.qkv_bias);
  }
  o_proj_ = add_layer<Linear>(*attention, "o_proj", heads_ * head, width, config.output_bias);
  if (config.qk_norm) {
    q_norm_ = add_layer<RMSNorm>(*attention, "q_norm", head, config.rms_norm_eps);
    k_norm_ = add_layer<RMSNorm>(*attention, "k_norm", head, config.rms_norm_eps);
  }
  const auto mlp = add_part(*this, "mlp");
  if (config.has_fused_layers) {
    gate_up_proj_ = add_layer<Linear>(*mlp, "gate_up_proj", width, 2 * inner, false);
  } else {
    gate_proj_ = add_layer<Linear>(*mlp, "gate_proj", width, inner, config.mlp_bias);
    up_proj_ = add_layer<Linear>(*mlp, "up_proj", width, inner, config.mlp_bias);
  }
  down_proj_ = add_layer<Linear>(*mlp, "down_proj", inner, width, config.mlp_bias);
  input_norm_ = add_layer<RMSNorm>(*this, "input_layernorm", width, config.rms_norm_eps, config.is_gemma);
  post_norm_ = add_layer<RMSNorm>(*this, "post_attention_layernorm", width, config.rms_norm_eps, config.is_gemma);
}

std::array<at::Tensor, 3> LlamaLayer::query_key_value(const at::Tensor& x) {
  if (qkv_proj_ == nullptr) return {call(q_proj_, x), call(k_proj_, x), call(v_proj_, x)};
  const int64_t inner = key_value_heads_ * width_of_head_;
  const auto parts = call(qkv_proj_, x).split_with_sizes({heads_ * width_of_head_, inner, inner}, -1);
  return {parts[0], parts[1], parts[2]};
}

at::Tensor LlamaLayer::attend_to(const at::Tensor& x, const at::Tensor& mask, const at::Tensor& cosines,
                                 const at::Tensor& sines) {
  const auto parts = query_key_value(x);
  at::Tensor query = split_heads(parts[0], heads_);
  at::Tensor key = split_heads(parts[1], key_value_heads_);
  if (q_norm_ != nullptr) {
    query = call(q_norm_, query);
    key = call(k_norm_, key);
  }
  const at::Tensor seen =
      attend(rotate(query, cosines, sines), rotate(key, cosines, sines), split_heads(parts[2], key_value_heads_), mask,
             {.dropout = is_training() ? dropout_ : 0.0, .is_causal = true});
  return call(o_proj_, seen);
}

at::Tensor LlamaLayer::mlp(const at::Tensor& x) {
  if (gate_up_proj_ == nullptr) return call(down_proj_, act_(call(gate_proj_, x)) * call(up_proj_, x));
  const auto parts = call(gate_up_proj_, x).chunk(2, -1);
  return call(down_proj_, act_(parts[0]) * parts[1]);
}

at::Tensor LlamaLayer::forward(const at::Tensor& x, const at::Tensor& full, const at::Tensor& narrow,
                               const at::Tensor& cosines, const at::Tensor& sines) {
  const auto drop = [&](const at::Tensor& part) {
    return residual_dropout_ == 0 ? part : at::dropout(part, residual_dropout_, is_training());
  };
  const at::Tensor after = x + drop(attend_to(call(input_norm_, x), has_window_ ? narrow : full, cosines, sines));
  return after + drop(mlp(call(post_norm_, after)));
}

LlamaModel::LlamaModel(const PretrainedConfig& config) : PretrainedModel(config), config_(read_llama_config(config)) {
  set_prefix("model");
  const RopeConfig& rope = config_.rope;
  frequencies_ = rope_frequencies(rope, config_.width_of_head(), /*tokens=*/1);
  if (rope.rope_type == "longrope") {
    long_frequencies_ = rope_frequencies(rope, config_.width_of_head(), rope.original_max_position_embeddings + 1);
  }
  embed_tokens_ =
      add_layer<Embedding>(*this, "embed_tokens", config_.vocab_size, config_.hidden_size, config_.pad_token_id);
  layers_ = add_layers<LlamaLayer>(*this, "layers", config_.num_hidden_layers, config_);
  norm_ = add_layer<RMSNorm>(*this, "norm", config_.hidden_size, config_.rms_norm_eps, config_.is_gemma);
}

at::Tensor LlamaModel::frequencies(int64_t tokens) const {
  const RopeConfig& rope = config_.rope;
  if (rope.rope_type == "longrope" && tokens > rope.original_max_position_embeddings) return long_frequencies_;
  if (rope.rope_type == "dynamic" && tokens > rope.max_position_embeddings) {
    return rope_frequencies(rope, config_.width_of_head(), tokens);
  }
  return frequencies_;
}

ModelOutput LlamaModel::forward(const ModelInputs& inputs) {
  check_ids(inputs, config().model_type());
  const at::Tensor& ids = inputs.input_ids;
  at::Tensor x = call(embed_tokens_, ids);
  if (config_.is_gemma) {
    x = x * rounded(std::sqrt(static_cast<double>(config_.hidden_size)), embed_tokens_->weight.scalar_type());
  }
  const int64_t tokens = ids.size(1);
  const auto [cosines, sines] = rope_table(frequencies(tokens), config_.rope.table_scale, tokens, x);
  const at::Tensor full = causal_mask(ids, inputs.attention_mask);
  const at::Tensor narrow =
      config_.sliding_window ? causal_mask(ids, inputs.attention_mask, config_.sliding_window) : at::Tensor();
  ModelOutput output;
  output.last_hidden_state = call(norm_, call_chain(layers_, x, full, narrow, cosines, sines));
  return output;
}

}  // namespace levin::huggingface
