// GPT-2, Llama and its relatives.
//
// Shapes: B batch, T tokens, C width (n_embd, hidden_size), R rotated numbers of a head. Masks are (B or 1, 1, T, T)
// bool, or undefined: a token sees itself and all tokens before it.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/dropout.h>

#include <cmath>

#include "levin/core/module_call.h"
#include "levin/models/huggingface/families.h"
#include "levin/models/huggingface/family_configs.h"
#include "levin/models/huggingface/functional.h"
#include "levin/models/huggingface/layers.h"

namespace levin::huggingface {

namespace {

// As the type holds it.
double rounded(double value, at::ScalarType type) {
  if (type == at::kBFloat16) return static_cast<c10::BFloat16>(static_cast<float>(value));
  return type == at::kHalf ? static_cast<double>(static_cast<c10::Half>(static_cast<float>(value))) : value;
}

}  // namespace

// ---- GPT-2 ---------------------------------------------------------------------------------------------------------

class GPT2Block : public torch::nn::Module {
 public:
  GPT2Block(const GPT2Config& config, int64_t number)
      : heads_(config.n_head),
        attention_dropout_(config.attn_pdrop),
        dropout_(config.resid_pdrop),
        scale_(config.scale_attn_weights ? 1 / std::sqrt(static_cast<double>(config.n_embd / config.n_head)) : 1.0),
        act_(activation(config.activation_function)) {
    if (config.scale_attn_by_inverse_layer_idx) scale_ /= static_cast<double>(number + 1);
    const int64_t width = config.n_embd, inner = config.n_inner.value_or(4 * width);
    // The more parts are added to the residual stream, the smaller they start.
    const double start_scale = 1 / std::sqrt(2.0 * static_cast<double>(config.n_layer));
    ln_1_ = add_layer<LayerNorm>(*this, "ln_1", width, config.layer_norm_epsilon);
    const auto attn = add_part(*this, "attn");
    c_attn_ = add_layer<Conv1D>(*attn, "c_attn", width, 3 * width);
    attn_proj_ = add_layer<Conv1D>(*attn, "c_proj", width, width, start_scale);
    ln_2_ = add_layer<LayerNorm>(*this, "ln_2", width, config.layer_norm_epsilon);
    const auto mlp = add_part(*this, "mlp");
    c_fc_ = add_layer<Conv1D>(*mlp, "c_fc", width, inner);
    mlp_proj_ = add_layer<Conv1D>(*mlp, "c_proj", inner, width, start_scale);
  }

  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask) {  // x: (B, T, C)
    const auto parts = call(c_attn_, call(ln_1_, x)).chunk(3, -1);
    const at::Tensor seen =
        attend(split_heads(parts[0], heads_), split_heads(parts[1], heads_), split_heads(parts[2], heads_), mask,
               {.dropout = is_training() ? attention_dropout_ : 0.0, .is_causal = true, .scale = scale_});
    const at::Tensor after = at::dropout(call(attn_proj_, seen), dropout_, is_training()) + x;
    const at::Tensor hidden = call(mlp_proj_, act_(call(c_fc_, call(ln_2_, after))));
    return after + at::dropout(hidden, dropout_, is_training());
  }

 private:
  int64_t heads_;
  double attention_dropout_, dropout_, scale_;
  Activation act_;
  std::shared_ptr<LayerNorm> ln_1_, ln_2_;
  std::shared_ptr<Conv1D> c_attn_, attn_proj_, c_fc_, mlp_proj_;
};

class GPT2Model : public PretrainedModel {
 public:
  explicit GPT2Model(const PretrainedConfig& config) : PretrainedModel(config), config_(read_gpt2_config(config)) {
    set_prefix("transformer");
    wte_ = add_layer<Embedding>(*this, "wte", config_.vocab_size, config_.n_embd);
    wpe_ = add_layer<Embedding>(*this, "wpe", config_.n_positions, config_.n_embd);
    blocks_ = add_layers<GPT2Block>(*this, "h", config_.n_layer, config_);
    ln_f_ = add_layer<LayerNorm>(*this, "ln_f", config_.n_embd, config_.layer_norm_epsilon);
  }

  ModelOutput forward(const ModelInputs& inputs) override {
    check_ids(inputs, config_.n_positions);
    const at::Tensor& ids = inputs.input_ids;
    at::Tensor x = call(wte_, ids) + call(wpe_, at::arange(ids.size(1), ids.options()).unsqueeze(0));
    if (inputs.token_type_ids.defined()) x = x + call(wte_, inputs.token_type_ids);
    x = at::dropout(x, config_.embd_pdrop, is_training());
    ModelOutput output;
    output.last_hidden_state = call(ln_f_, call_chain(blocks_, x, causal_mask(ids, inputs.attention_mask)));
    return output;
  }

  [[nodiscard]] at::Tensor input_embeddings() const override { return wte_->weight; }

 private:
  GPT2Config config_;
  std::shared_ptr<Embedding> wte_, wpe_;
  std::vector<std::shared_ptr<GPT2Block>> blocks_;
  std::shared_ptr<LayerNorm> ln_f_;
};

// ---- Llama and its relatives ---------------------------------------------------------------------------------------

class LlamaLayer : public torch::nn::Module {
 public:
  LlamaLayer(const LlamaConfig& config, int64_t number)
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

  // x: (B, T, C). A layer with a window uses the mask `narrow`, others `full`. cosines, sines: (T, R).
  at::Tensor forward(const at::Tensor& x, const at::Tensor& full, const at::Tensor& narrow, const at::Tensor& cosines,
                     const at::Tensor& sines) {
    const auto drop = [&](const at::Tensor& part) {
      return residual_dropout_ == 0 ? part : at::dropout(part, residual_dropout_, is_training());
    };
    const at::Tensor after = x + drop(attend_to(call(input_norm_, x), has_window_ ? narrow : full, cosines, sines));
    return after + drop(mlp(call(post_norm_, after)));
  }

 private:
  at::Tensor attend_to(const at::Tensor& x, const at::Tensor& mask, const at::Tensor& cosines,
                       const at::Tensor& sines) {
    const auto parts = query_key_value(x);
    at::Tensor query = split_heads(parts[0], heads_);
    at::Tensor key = split_heads(parts[1], key_value_heads_);
    if (q_norm_ != nullptr) {
      query = call(q_norm_, query);
      key = call(k_norm_, key);
    }
    const at::Tensor seen =
        attend(rotate(query, cosines, sines), rotate(key, cosines, sines), split_heads(parts[2], key_value_heads_),
               mask, {.dropout = is_training() ? dropout_ : 0.0, .is_causal = true});
    return call(o_proj_, seen);
  }

  std::vector<at::Tensor> query_key_value(const at::Tensor& x) {  // each (B, T, heads * width)
    if (qkv_proj_ == nullptr) return {call(q_proj_, x), call(k_proj_, x), call(v_proj_, x)};
    const int64_t inner = key_value_heads_ * width_of_head_;
    return call(qkv_proj_, x).split_with_sizes({heads_ * width_of_head_, inner, inner}, -1);
  }

  at::Tensor mlp(const at::Tensor& x) {
    if (gate_up_proj_ == nullptr) return call(down_proj_, act_(call(gate_proj_, x)) * call(up_proj_, x));
    const auto parts = call(gate_up_proj_, x).chunk(2, -1);
    return call(down_proj_, act_(parts[0]) * parts[1]);
  }

  int64_t heads_, key_value_heads_, width_of_head_;
  double dropout_, residual_dropout_;
  bool has_window_;
  Activation act_;
  std::shared_ptr<Linear> q_proj_, k_proj_, v_proj_, gate_proj_, up_proj_;  // null in Phi-3, which has
  std::shared_ptr<Linear> qkv_proj_, gate_up_proj_;                         // these
  std::shared_ptr<Linear> o_proj_, down_proj_;
  std::shared_ptr<RMSNorm> q_norm_, k_norm_;  // Qwen3; null elsewhere
  std::shared_ptr<RMSNorm> input_norm_, post_norm_;
};

class LlamaModel : public PretrainedModel {
 public:
  explicit LlamaModel(const PretrainedConfig& config) : PretrainedModel(config), config_(read_llama_config(config)) {
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

  ModelOutput forward(const ModelInputs& inputs) override {
    check_ids(inputs, /*positions=*/std::nullopt);
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

  [[nodiscard]] at::Tensor input_embeddings() const override { return embed_tokens_->weight; }

 private:
  [[nodiscard]] at::Tensor frequencies(int64_t tokens) const {
    const RopeConfig& rope = config_.rope;
    if (rope.rope_type == "longrope" && tokens > rope.original_max_position_embeddings) return long_frequencies_;
    if (rope.rope_type == "dynamic" && tokens > rope.max_position_embeddings) {
      return rope_frequencies(rope, config_.width_of_head(), tokens);
    }
    return frequencies_;
  }

  LlamaConfig config_;
  at::Tensor frequencies_;       // neither parameter nor buffer: stays float32 in every precision
  at::Tensor long_frequencies_;  // longrope: for samples longer than in pretraining
  std::shared_ptr<Embedding> embed_tokens_;
  std::vector<std::shared_ptr<LlamaLayer>> layers_;
  std::shared_ptr<RMSNorm> norm_;
};

std::shared_ptr<PretrainedModel> make_gpt2(const PretrainedConfig& config) {
  return std::make_shared<GPT2Model>(config);
}

std::shared_ptr<PretrainedModel> make_llama(const PretrainedConfig& config) {
  return std::make_shared<LlamaModel>(config);
}

}  // namespace levin::huggingface
