#include "levin/models/huggingface/llama.h"

#include <ATen/TensorOperators.h>

#include "levin/core/module_call.h"
#include "levin/models/huggingface/attention.h"
#include "levin/models/huggingface/inputs.h"

namespace levin::huggingface {

LlamaLayer::LlamaLayer(const LlamaConfig& config, int64_t number)
    : heads_(config.num_attention_heads),
      key_value_heads_(config.key_value_heads()),
      dropout_(config.attention_dropout),
      has_window_(config.has_window.at(static_cast<size_t>(number))),
      act_(activation(config.hidden_act)) {
  const int64_t width = config.hidden_size, inner = config.intermediate_size, head = config.width_of_head();
  const auto attention = add_part(*this, "self_attn");
  q_proj_ = add_layer<Linear>(*attention, "q_proj", width, heads_ * head, config.qkv_bias);
  k_proj_ = add_layer<Linear>(*attention, "k_proj", width, key_value_heads_ * head, config.qkv_bias);
  v_proj_ = add_layer<Linear>(*attention, "v_proj", width, key_value_heads_ * head, config.qkv_bias);
  o_proj_ = add_layer<Linear>(*attention, "o_proj", heads_ * head, width, config.output_bias);
  if (config.qk_norm) {
    q_norm_ = add_layer<RMSNorm>(*attention, "q_norm", head, config.rms_norm_eps);
    k_norm_ = add_layer<RMSNorm>(*attention, "k_norm", head, config.rms_norm_eps);
  }
  const auto mlp = add_part(*this, "mlp");
  gate_proj_ = add_layer<Linear>(*mlp, "gate_proj", width, inner, config.mlp_bias);
  up_proj_ = add_layer<Linear>(*mlp, "up_proj", width, inner, config.mlp_bias);
  down_proj_ = add_layer<Linear>(*mlp, "down_proj", inner, width, config.mlp_bias);
  input_norm_ = add_layer<RMSNorm>(*this, "input_layernorm", width, config.rms_norm_eps);
  post_norm_ = add_layer<RMSNorm>(*this, "post_attention_layernorm", width, config.rms_norm_eps);
}

at::Tensor LlamaLayer::attend_to(const at::Tensor& x, const at::Tensor& mask, const at::Tensor& cosines,
                                 const at::Tensor& sines) {
  at::Tensor query = split_heads(call(q_proj_, x), heads_);
  at::Tensor key = split_heads(call(k_proj_, x), key_value_heads_);
  if (q_norm_ != nullptr) {
    query = call(q_norm_, query);
    key = call(k_norm_, key);
  }
  const at::Tensor seen = attend(rotate(query, cosines, sines), rotate(key, cosines, sines),
                                 split_heads(call(v_proj_, x), key_value_heads_), mask,
                                 {.dropout = is_training() ? dropout_ : 0.0, .is_causal = true});
  return call(o_proj_, seen);
}

at::Tensor LlamaLayer::forward(const at::Tensor& x, const at::Tensor& full, const at::Tensor& narrow,
                               const at::Tensor& cosines, const at::Tensor& sines) {
  const at::Tensor after = x + attend_to(call(input_norm_, x), has_window_ ? narrow : full, cosines, sines);
  const at::Tensor normed = call(post_norm_, after);
  return after + call(down_proj_, act_(call(gate_proj_, normed)) * call(up_proj_, normed));
}

LlamaModel::LlamaModel(const PretrainedConfig& config) : PretrainedModel(config), config_(read_llama_config(config)) {
  set_prefix("model");
  frequencies_ = rope_frequencies(config_.rope, config_.width_of_head());
  embed_tokens_ =
      add_layer<Embedding>(*this, "embed_tokens", config_.vocab_size, config_.hidden_size, config_.pad_token_id);
  layers_ = add_layers<LlamaLayer>(*this, "layers", config_.num_hidden_layers, config_);
  norm_ = add_layer<RMSNorm>(*this, "norm", config_.hidden_size, config_.rms_norm_eps);
}

ModelOutput LlamaModel::forward(const ModelInputs& inputs) {
  check_ids(inputs, config().model_type());
  const at::Tensor& ids = inputs.input_ids;
  const at::Tensor x = call(embed_tokens_, ids);
  const auto [cosines, sines] = rope_table(frequencies_, ids.size(1), x);
  const at::Tensor full = causal_mask(ids, inputs.attention_mask);
  const at::Tensor narrow =
      config_.sliding_window ? causal_mask(ids, inputs.attention_mask, config_.sliding_window) : at::Tensor();
  ModelOutput output;
  output.last_hidden_state = call(norm_, call_chain(layers_, x, full, narrow, cosines, sines));
  return output;
}

}  // namespace levin::huggingface
