// The transformer encoder of BERT (Devlin et al. 2019) and XLM-R (Conneau et al. 2020): learned positions,
// bidirectional attention, norms after each residual addition (post-norm), GELU.
//
// Shapes: B batch, T tokens of a sample, C hidden_size, H attention heads. Parameters have the names of Hugging Face's
// files below "bert" or "roberta": embeddings.word_embeddings.weight,
// encoder.layer.0.attention.self.query.weight, …
#pragma once

#include <cstdint>
#include <vector>

#include "levin/levin.h"

enum class Architecture { xlmr_base, xlmr_large, bert_base, bert_large };
template <>
struct levin::EnumNames<Architecture> {
  static constexpr EnumName<Architecture> names[] = {{"xlmr_base", Architecture::xlmr_base},
                                                     {"xlmr_large", Architecture::xlmr_large},
                                                     {"bert_base", Architecture::bert_base},
                                                     {"bert_large", Architecture::bert_large}};
};

/// The sizes of an encoder.
struct EncoderShape {
  bool is_roberta = true;  // XLM-R: positions count non-padding tokens, from pad_token_id + 1
  int64_t num_hidden_layers = 12;
  int64_t hidden_size = 768;
  int64_t num_attention_heads = 12;
  int64_t intermediate_size = 3072;
  int64_t vocab_size = 250002;
  int64_t max_position_embeddings = 514;  // rows of the table; XLM-R never uses the first pad_token_id + 1
  int64_t type_vocab_size = 1;
  int64_t pad_token_id = 1;
  double layer_norm_eps = 1e-5;
  double dropout = 0.1;  // dropout rate of embeddings, attention and residual branches

  /// The published sizes: https://arxiv.org/abs/1911.02116 and https://arxiv.org/abs/1810.04805.
  [[nodiscard]] static EncoderShape of(Architecture architecture);
  /// The largest number of tokens of a sample.
  [[nodiscard]] int64_t max_tokens() const { return max_position_embeddings - (is_roberta ? pad_token_id + 1 : 0); }
};

/// The sum of word, position and type embeddings, normalized.
class EncoderEmbeddingsImpl : public torch::nn::Module {
 public:
  explicit EncoderEmbeddingsImpl(const EncoderShape& shape);
  /// ids: (B, T) int64; is_token: (B, T) bool, false for padding; returns (B, T, C).
  torch::Tensor forward(const torch::Tensor& ids, const torch::Tensor& is_token);

 private:
  [[nodiscard]] torch::Tensor positions(const torch::Tensor& is_token) const;  // (B, T) int64

  EncoderShape shape_;
  torch::nn::Embedding words_{nullptr}, positions_{nullptr}, types_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
};
TORCH_MODULE(EncoderEmbeddings);

/// x = norm(x + attention(x)), then norm(x + mlp(x)).
class EncoderLayerImpl : public torch::nn::Module {
 public:
  explicit EncoderLayerImpl(const EncoderShape& shape);
  /// x: (B, T, C); mask: (B, 1, 1, T) bool, true for tokens that are attended to.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask);

 private:
  torch::Tensor attend(const torch::Tensor& x, const torch::Tensor& mask);

  int64_t heads_;
  double dropout_;
  torch::nn::Linear query_{nullptr}, key_{nullptr}, value_{nullptr}, attended_{nullptr}, wide_{nullptr},
      narrow_{nullptr};
  torch::nn::LayerNorm attention_norm_{nullptr}, norm_{nullptr};
};
TORCH_MODULE(EncoderLayer);

/// Embeddings and layers; with BERT's `pooler` also tanh(W x_0 + b) of the first token's features.
class EncoderImpl : public torch::nn::Module {
 public:
  EncoderImpl(const EncoderShape& shape, bool pooler);
  /// ids: (B, T) int64, T <= max_tokens(); returns (B, T, C). Layers are called through levin::call_chain, so that
  /// recomputation can act on each by its name, encoder.layer.0, …
  torch::Tensor forward(const torch::Tensor& ids);
  /// Returns the pooled features of forward's result: (B, C). Requires `pooler`.
  torch::Tensor pooled(const torch::Tensor& features);

 private:
  EncoderShape shape_;
  EncoderEmbeddings embeddings_{nullptr};
  std::vector<EncoderLayer> layers_;
  torch::nn::Linear pooler_{nullptr};
};
TORCH_MODULE(Encoder);

/// Returns a linear layer with the initialization used here: normal weights with standard deviation 0.02, zero bias.
[[nodiscard]] torch::nn::Linear encoder_linear(int64_t in, int64_t out);
