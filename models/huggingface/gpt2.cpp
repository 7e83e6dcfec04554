#include "levin/models/huggingface/gpt2.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/dropout.h>

#include <cmath>

#include "levin/core/module_call.h"
#include "levin/models/huggingface/attention.h"
#include "levin/models/huggingface/inputs.h"

namespace levin::huggingface {

GPT2Block::GPT2Block(const GPT2Config& config, int64_t number)
    : heads_(config.n_head),
      attention_dropout_(config.attn_pdrop),
      dropout_(config.resid_pdrop),
      scale_(config.scale_attn_weights ? 1 / std::sqrt(static_cast<double>(config.n_embd / config.n_head)) : 1.0),
      act_(activation(config.activation_function)) {
  if (config.scale_attn_by_inverse_layer_idx) scale_ /= static_cast<double>(number + 1);
  const int64_t width = config.n_embd, inner = config.n_inner.value_or(4 * width);
  // What is added to the residual stream starts smaller the more of it there is.
  const double share = 1 / std::sqrt(2.0 * static_cast<double>(config.n_layer));
  ln_1_ = add_layer<LayerNorm>(*this, "ln_1", width, config.layer_norm_epsilon);
  const auto attn = add_part(*this, "attn");
  c_attn_ = add_layer<Conv1D>(*attn, "c_attn", width, 3 * width);
  attn_proj_ = add_layer<Conv1D>(*attn, "c_proj", width, width, share);
  ln_2_ = add_layer<LayerNorm>(*this, "ln_2", width, config.layer_norm_epsilon);
  const auto mlp = add_part(*this, "mlp");
  c_fc_ = add_layer<Conv1D>(*mlp, "c_fc", width, inner);
  mlp_proj_ = add_layer<Conv1D>(*mlp, "c_proj", inner, width, share);
}

at::Tensor GPT2Block::attend_to(const at::Tensor& x, const at::Tensor& mask) {
  const auto parts = call(c_attn_, x).chunk(3, -1);
  const at::Tensor seen =
      attend(split_heads(parts[0], heads_), split_heads(parts[1], heads_), split_heads(parts[2], heads_), mask,
             {.dropout = is_training() ? attention_dropout_ : 0.0, .is_causal = true, .scale = scale_});
  return at::dropout(call(attn_proj_, seen), dropout_, is_training());
}

at::Tensor GPT2Block::forward(const at::Tensor& x, const at::Tensor& mask) {
  const at::Tensor after = attend_to(call(ln_1_, x), mask) + x;
  const at::Tensor hidden = call(mlp_proj_, act_(call(c_fc_, call(ln_2_, after))));
  return after + at::dropout(hidden, dropout_, is_training());
}

GPT2Model::GPT2Model(const PretrainedConfig& config) : PretrainedModel(config), config_(read_gpt2_config(config)) {
  set_prefix("transformer");
  wte_ = add_layer<Embedding>(*this, "wte", config_.vocab_size, config_.n_embd);
  wpe_ = add_layer<Embedding>(*this, "wpe", config_.n_positions, config_.n_embd);
  blocks_ = add_layers<GPT2Block>(*this, "h", config_.n_layer, config_);
  ln_f_ = add_layer<LayerNorm>(*this, "ln_f", config_.n_embd, config_.layer_norm_epsilon);
}

ModelOutput GPT2Model::forward(const ModelInputs& inputs) {
  check_ids(inputs, config().model_type());
  const at::Tensor& ids = inputs.input_ids;
  check_length(ids.size(1), config_.n_positions, config().model_type());
  at::Tensor x = call(wte_, ids) + call(wpe_, at::arange(ids.size(1), ids.options()).unsqueeze(0));
  if (inputs.token_type_ids.defined()) x = x + call(wte_, inputs.token_type_ids);
  x = at::dropout(x, config_.embd_pdrop, is_training());
  ModelOutput output;
  output.last_hidden_state = call(ln_f_, call_chain(blocks_, x, causal_mask(ids, inputs.attention_mask)));
  return output;
}

}  // namespace levin::huggingface
