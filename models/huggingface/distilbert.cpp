#include "levin/models/huggingface/distilbert.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/dropout.h>

#include "levin/core/module_call.h"
#include "levin/models/huggingface/attention.h"
#include "levin/models/huggingface/inputs.h"

namespace levin::huggingface {

namespace {

constexpr double kNormEps = 1e-12;  // its config has none

}  // namespace

DistilBertEmbeddings::DistilBertEmbeddings(const DistilBertConfig& config) : dropout_(config.dropout) {
  words_ = add_layer<Embedding>(*this, "word_embeddings", config.vocab_size, config.dim, config.pad_token_id);
  if (config.sinusoidal_pos_embds) {
    positions_ =
        add_layer<SinusoidalEmbedding>(*this, "position_embeddings", config.max_position_embeddings, config.dim);
  } else {
    positions_ = add_layer<Embedding>(*this, "position_embeddings", config.max_position_embeddings, config.dim);
  }
  norm_ = add_layer<LayerNorm>(*this, "LayerNorm", config.dim, kNormEps);
}

at::Tensor DistilBertEmbeddings::forward(const at::Tensor& ids) {
  const at::Tensor places = at::arange(ids.size(1), ids.options()).unsqueeze(0);
  return at::dropout(call(norm_, call(words_, ids) + call(positions_, places)), dropout_, is_training());
}

DistilBertLayer::DistilBertLayer(const DistilBertConfig& config)
    : heads_(config.n_heads),
      attention_dropout_(config.attention_dropout),
      dropout_(config.dropout),
      act_(activation(config.activation)) {
  const int64_t width = config.dim;
  const auto attention = add_part(*this, "attention");
  q_lin_ = add_layer<Linear>(*attention, "q_lin", width, width);
  k_lin_ = add_layer<Linear>(*attention, "k_lin", width, width);
  v_lin_ = add_layer<Linear>(*attention, "v_lin", width, width);
  out_lin_ = add_layer<Linear>(*attention, "out_lin", width, width);
  attention_norm_ = add_layer<LayerNorm>(*this, "sa_layer_norm", width, kNormEps);
  const auto mlp = add_part(*this, "ffn");
  lin1_ = add_layer<Linear>(*mlp, "lin1", width, config.hidden_dim);
  lin2_ = add_layer<Linear>(*mlp, "lin2", config.hidden_dim, width);
  norm_ = add_layer<LayerNorm>(*this, "output_layer_norm", width, kNormEps);
}

at::Tensor DistilBertLayer::forward(const at::Tensor& x, const at::Tensor& mask) {
  const auto heads_of = [&](const std::shared_ptr<Linear>& layer) { return split_heads(call(layer, x), heads_); };
  const at::Tensor seen = attend(heads_of(q_lin_), heads_of(k_lin_), heads_of(v_lin_), mask,
                                 {.dropout = is_training() ? attention_dropout_ : 0.0});
  const at::Tensor after = call(attention_norm_, call(out_lin_, seen) + x);
  const at::Tensor hidden = call(lin2_, act_(call(lin1_, after)));
  return call(norm_, at::dropout(hidden, dropout_, is_training()) + after);
}

DistilBertModel::DistilBertModel(const PretrainedConfig& config)
    : PretrainedModel(config), config_(read_distilbert_config(config)) {
  set_prefix("distilbert");
  embeddings_ = add_layer<DistilBertEmbeddings>(*this, "embeddings", config_);
  layers_ = add_layers<DistilBertLayer>(*add_part(*this, "transformer"), "layer", config_.n_layers, config_);
}

ModelOutput DistilBertModel::forward(const ModelInputs& inputs) {
  check_ids(inputs, config().model_type());
  check_length(inputs.input_ids.size(1), config_.max_position_embeddings, config().model_type());
  ModelOutput output;
  output.last_hidden_state =
      call_chain(layers_, call(embeddings_, inputs.input_ids), padding_mask(inputs.attention_mask));
  return output;
}

}  // namespace levin::huggingface
