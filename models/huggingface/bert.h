// BERT (Devlin et al. 2019), RoBERTa (Liu et al. 2019), XLM-R (Conneau et al. 2020) and CamemBERT (Martin et al. 2020):
// learned positions, bidirectional attention, norms after each residual addition.
//
// Shapes: B batch, T tokens, C hidden_size.
#pragma once

#include <memory>
#include <vector>

#include "levin/models/huggingface/activation.h"
#include "levin/models/huggingface/family_configs.h"
#include "levin/models/huggingface/layers.h"
#include "levin/models/huggingface/pretrained_model.h"

namespace levin::huggingface {

class BertEmbeddings : public torch::nn::Module {
 public:
  explicit BertEmbeddings(const BertConfig& config);
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& types);  // (B, T) int64; types may be undefined
  [[nodiscard]] at::Tensor words() const { return words_->weight; }

 private:
  [[nodiscard]] at::Tensor positions(const at::Tensor& ids) const;

  BertConfig config_;
  std::shared_ptr<Embedding> words_, positions_, types_;
  std::shared_ptr<LayerNorm> norm_;
};

class BertLayer : public torch::nn::Module {
 public:
  explicit BertLayer(const BertConfig& config);
  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask);  // (B, T, C); (B, 1, 1, T) bool or undefined

 private:
  int64_t heads_;
  double attention_dropout_, dropout_;
  Activation act_;
  std::shared_ptr<Linear> query_, key_, value_, attended_, wide_, narrow_;
  std::shared_ptr<LayerNorm> attention_norm_, norm_;
};

class BertModel : public PretrainedModel {
 public:
  BertModel(const PretrainedConfig& config, bool add_pooling_layer);
  ModelOutput forward(const ModelInputs& inputs) override;
  [[nodiscard]] at::Tensor input_embeddings() const override { return embeddings_->words(); }

 private:
  BertConfig config_;
  std::shared_ptr<BertEmbeddings> embeddings_;
  std::vector<std::shared_ptr<BertLayer>> layers_;
  std::shared_ptr<Linear> pooler_;  // null: none
};

}  // namespace levin::huggingface
