#include "levin/models/huggingface/bert.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/zeros.h>

#include "levin/core/module_call.h"
#include "levin/models/huggingface/attention.h"
#include "levin/models/huggingface/inputs.h"

namespace levin::huggingface {

BertEmbeddings::BertEmbeddings(const BertConfig& config) : config_(config) {
  const int64_t width = config.hidden_size;
  words_ = add_layer<Embedding>(*this, "word_embeddings", config.vocab_size, width, config.pad_token_id);
  positions_ = add_layer<Embedding>(*this, "position_embeddings", config.max_position_embeddings, width,
                                    config.is_roberta ? config.pad_token_id : std::nullopt);
  types_ = add_layer<Embedding>(*this, "token_type_embeddings", config.type_vocab_size, width);
  norm_ = add_layer<LayerNorm>(*this, "LayerNorm", width, config.layer_norm_eps);
}

// RoBERTa counts the tokens that are no padding from pad_token_id + 1, and leaves padding at pad_token_id (fairseq's
// make_positions). BERT counts all, from 0.
at::Tensor BertEmbeddings::positions(const at::Tensor& ids) const {
  if (!config_.is_roberta) return at::arange(ids.size(1), ids.options()).unsqueeze(0);
  const at::Tensor counted = ids.ne(*config_.pad_token_id).to(at::kLong);
  return counted.cumsum(1) * counted + *config_.pad_token_id;
}

at::Tensor BertEmbeddings::forward(const at::Tensor& ids, const at::Tensor& types) {
  const at::Tensor type_rows = call(types_, types.defined() ? types : at::zeros({1}, ids.options()));
  const at::Tensor sum = call(words_, ids) + type_rows + call(positions_, positions(ids));
  return at::dropout(call(norm_, sum), config_.hidden_dropout_prob, is_training());
}

BertLayer::BertLayer(const BertConfig& config)
    : heads_(config.num_attention_heads),
      attention_dropout_(config.attention_probs_dropout_prob),
      dropout_(config.hidden_dropout_prob),
      act_(activation(config.hidden_act)) {
  const int64_t width = config.hidden_size;
  const auto attention = add_part(*this, "attention");
  const auto self = add_part(*attention, "self");
  query_ = add_layer<Linear>(*self, "query", width, width);
  key_ = add_layer<Linear>(*self, "key", width, width);
  value_ = add_layer<Linear>(*self, "value", width, width);
  const auto output = add_part(*attention, "output");
  attended_ = add_layer<Linear>(*output, "dense", width, width);
  attention_norm_ = add_layer<LayerNorm>(*output, "LayerNorm", width, config.layer_norm_eps);
  wide_ = add_layer<Linear>(*add_part(*this, "intermediate"), "dense", width, config.intermediate_size);
  const auto last = add_part(*this, "output");
  narrow_ = add_layer<Linear>(*last, "dense", config.intermediate_size, width);
  norm_ = add_layer<LayerNorm>(*last, "LayerNorm", width, config.layer_norm_eps);
}

at::Tensor BertLayer::forward(const at::Tensor& x, const at::Tensor& mask) {
  const auto heads_of = [&](const std::shared_ptr<Linear>& layer) { return split_heads(call(layer, x), heads_); };
  const at::Tensor seen = attend(heads_of(query_), heads_of(key_), heads_of(value_), mask,
                                 {.dropout = is_training() ? attention_dropout_ : 0.0});
  const at::Tensor attended = at::dropout(call(attended_, seen), dropout_, is_training());
  const at::Tensor after = call(attention_norm_, attended + x);
  const at::Tensor hidden = call(narrow_, act_(call(wide_, after)));
  return call(norm_, at::dropout(hidden, dropout_, is_training()) + after);
}

BertModel::BertModel(const PretrainedConfig& config, bool add_pooling_layer)
    : PretrainedModel(config), config_(read_bert_config(config)) {
  set_prefix(config_.is_roberta ? "roberta" : "bert");
  embeddings_ = add_layer<BertEmbeddings>(*this, "embeddings", config_);
  layers_ = add_layers<BertLayer>(*add_part(*this, "encoder"), "layer", config_.num_hidden_layers, config_);
  if (!add_pooling_layer) return;
  pooler_ = add_layer<Linear>(*add_part(*this, "pooler"), "dense", config_.hidden_size, config_.hidden_size);
}

ModelOutput BertModel::forward(const ModelInputs& inputs) {
  check_ids(inputs, config().model_type());
  const int64_t taken = config_.is_roberta ? *config_.pad_token_id + 1 : 0;
  check_length(inputs.input_ids.size(1), config_.max_position_embeddings - taken, config().model_type());
  const at::Tensor x = call(embeddings_, inputs.input_ids, inputs.token_type_ids);
  ModelOutput output;
  output.last_hidden_state = call_chain(layers_, x, padding_mask(inputs.attention_mask));
  if (pooler_ != nullptr) output.pooler_output = call(pooler_, output.last_hidden_state.select(1, 0)).tanh();
  return output;
}

}  // namespace levin::huggingface
