#include "encoder.h"

#include <string>

#include "levin/core/module_call.h"
#include "project.h"

namespace nn = torch::nn;

namespace {

constexpr double kStartDeviation = 0.02;  // BERT's initializer_range

// The row of padding starts as zeros and learns nothing.
nn::Embedding encoder_table(int64_t rows, int64_t width, std::optional<int64_t> padding = std::nullopt) {
  nn::EmbeddingOptions options(rows, width);
  if (padding) options.padding_idx(*padding);
  nn::Embedding table(options);
  const torch::NoGradGuard no_grad;
  table->weight.normal_(0.0, kStartDeviation);
  if (padding) table->weight[*padding].zero_();
  return table;
}

nn::LayerNorm encoder_norm(const EncoderShape& shape) {
  return nn::LayerNorm(nn::LayerNormOptions({shape.hidden_size}).eps(shape.layer_norm_eps));
}

std::shared_ptr<nn::Module> part_of(nn::Module& module, const std::string& name) {
  return module.register_module(name, std::make_shared<nn::Module>());
}

}  // namespace

nn::Linear encoder_linear(int64_t in, int64_t out) {
  nn::Linear linear(in, out);
  nn::init::normal_(linear->weight, 0.0, kStartDeviation);
  nn::init::zeros_(linear->bias);
  return linear;
}

EncoderShape EncoderShape::of(Architecture architecture) {
  EncoderShape shape;  // xlmr_base
  if (architecture == Architecture::xlmr_large || architecture == Architecture::bert_large) {
    shape.num_hidden_layers = 24;
    shape.hidden_size = 1024;
    shape.num_attention_heads = 16;
    shape.intermediate_size = 4096;
  }
  if (architecture == Architecture::bert_base || architecture == Architecture::bert_large) {
    shape.is_roberta = false;
    shape.vocab_size = 30522;
    shape.max_position_embeddings = 512;
    shape.type_vocab_size = 2;
    shape.pad_token_id = 0;
    shape.layer_norm_eps = 1e-12;
  }
  return shape;
}

// ---- embeddings ----------------------------------------------------------------------------------------------------

EncoderEmbeddingsImpl::EncoderEmbeddingsImpl(const EncoderShape& shape) : shape_(shape) {
  const std::optional<int64_t> padding = shape.pad_token_id;
  words_ = register_module("word_embeddings", encoder_table(shape.vocab_size, shape.hidden_size, padding));
  positions_ = register_module("position_embeddings", encoder_table(shape.max_position_embeddings, shape.hidden_size,
                                                                    shape.is_roberta ? padding : std::nullopt));
  types_ = register_module("token_type_embeddings", encoder_table(shape.type_vocab_size, shape.hidden_size));
  norm_ = register_module("LayerNorm", encoder_norm(shape));
}

// XLM-R counts tokens that are not padding, and fairseq starts after the number of the padding, whose own position it
// stands at: with padding 1 the first token is at 2. BERT counts all, from 0.
torch::Tensor EncoderEmbeddingsImpl::positions(const torch::Tensor& is_token) const {
  if (!shape_.is_roberta) return torch::arange(is_token.size(1), is_token.options().dtype(torch::kLong)).unsqueeze(0);
  const auto counted = is_token.to(torch::kLong);
  return counted.cumsum(1) * counted + shape_.pad_token_id;
}

torch::Tensor EncoderEmbeddingsImpl::forward(const torch::Tensor& ids, const torch::Tensor& is_token) {
  const auto types = types_->weight[0];  // one text a sample: all of the first type
  const auto sum = words_->forward(ids) + positions_->forward(positions(is_token)) + types;
  return at::dropout(norm_->forward(sum), shape_.dropout, is_training());
}

// ---- a layer -------------------------------------------------------------------------------------------------------

EncoderLayerImpl::EncoderLayerImpl(const EncoderShape& shape)
    : heads_(shape.num_attention_heads), dropout_(shape.dropout) {
  const int64_t width = shape.hidden_size;
  const auto attention = part_of(*this, "attention");
  const auto self = part_of(*attention, "self");
  query_ = self->register_module("query", encoder_linear(width, width));
  key_ = self->register_module("key", encoder_linear(width, width));
  value_ = self->register_module("value", encoder_linear(width, width));
  const auto output = part_of(*attention, "output");
  attended_ = output->register_module("dense", encoder_linear(width, width));
  attention_norm_ = output->register_module("LayerNorm", encoder_norm(shape));
  wide_ = part_of(*this, "intermediate")->register_module("dense", encoder_linear(width, shape.intermediate_size));
  const auto last = part_of(*this, "output");
  narrow_ = last->register_module("dense", encoder_linear(shape.intermediate_size, width));
  norm_ = last->register_module("LayerNorm", encoder_norm(shape));
}

torch::Tensor EncoderLayerImpl::attend(const torch::Tensor& x, const torch::Tensor& mask) {
  const int64_t batch = x.size(0), tokens = x.size(1), width = x.size(2);
  const auto by_head = [&](const torch::Tensor& y) {  // (B, T, C) to (B, H, T, C / H)
    return y.view({batch, tokens, heads_, width / heads_}).transpose(1, 2);
  };
  const auto heads =
      at::scaled_dot_product_attention(by_head(project(query_, x)), by_head(project(key_, x)),
                                       by_head(project(value_, x)), mask, is_training() ? dropout_ : 0.0);
  return project(attended_, heads.transpose(1, 2).reshape({batch, tokens, width}));
}

torch::Tensor EncoderLayerImpl::forward(const torch::Tensor& x, const torch::Tensor& mask) {
  const auto after = attention_norm_->forward(x + at::dropout(attend(x, mask), dropout_, is_training()));
  const auto hidden = at::gelu(project(wide_, after));
  return norm_->forward(after + at::dropout(project(narrow_, hidden), dropout_, is_training()));
}

// ---- the encoder ---------------------------------------------------------------------------------------------------

EncoderImpl::EncoderImpl(const EncoderShape& shape, bool pooler) : shape_(shape) {
  embeddings_ = register_module("embeddings", EncoderEmbeddings(shape));
  nn::ModuleList list;
  for (int64_t i = 0; i < shape.num_hidden_layers; ++i) {
    layers_.emplace_back(shape);
    list->push_back(layers_.back());
  }
  part_of(*this, "encoder")->register_module("layer", list);
  if (!pooler) return;
  pooler_ = part_of(*this, "pooler")->register_module("dense", encoder_linear(shape.hidden_size, shape.hidden_size));
}

torch::Tensor EncoderImpl::forward(const torch::Tensor& ids) {
  if (ids.size(1) > shape_.max_tokens()) {
    throw levin::Error("Encoder: got samples of " + std::to_string(ids.size(1)) + " tokens, and its " +
                       std::to_string(shape_.max_position_embeddings) + " positions are enough for " +
                       std::to_string(shape_.max_tokens()) + ". Truncate the text (the data's max_length).");
  }
  const auto is_token = ids != shape_.pad_token_id;      // (B, T)
  const auto mask = is_token.unsqueeze(1).unsqueeze(2);  // (B, 1, 1, T)
  const auto x = embeddings_->forward(ids, is_token);
  return levin::call_chain(layers_, x, mask);
}

torch::Tensor EncoderImpl::pooled(const torch::Tensor& features) {
  return pooler_->forward(features.select(1, 0)).tanh();
}
