// DistilBERT (Sanh et al. 2019): BERT's layers, fewer of them, without token types and pooler.
//
// Shapes: B batch, T tokens, C dim.
#pragma once

#include <memory>
#include <vector>

#include "levin/models/huggingface/activation.h"
#include "levin/models/huggingface/family_configs.h"
#include "levin/models/huggingface/layers.h"
#include "levin/models/huggingface/pretrained_model.h"

namespace levin::huggingface {

class DistilBertEmbeddings : public torch::nn::Module {
 public:
  explicit DistilBertEmbeddings(const DistilBertConfig& config);
  at::Tensor forward(const at::Tensor& ids);  // (B, T) int64
  [[nodiscard]] at::Tensor words() const { return words_->weight; }

 private:
  double dropout_;
  std::shared_ptr<Embedding> words_, positions_;
  std::shared_ptr<LayerNorm> norm_;
};

class DistilBertLayer : public torch::nn::Module {
 public:
  explicit DistilBertLayer(const DistilBertConfig& config);
  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask);  // (B, T, C); (B, 1, 1, T) bool or undefined

 private:
  int64_t heads_;
  double attention_dropout_, dropout_;
  Activation act_;
  std::shared_ptr<Linear> q_lin_, k_lin_, v_lin_, out_lin_, lin1_, lin2_;
  std::shared_ptr<LayerNorm> attention_norm_, norm_;
};

class DistilBertModel : public PretrainedModel {
 public:
  explicit DistilBertModel(const PretrainedConfig& config);
  ModelOutput forward(const ModelInputs& inputs) override;
  [[nodiscard]] at::Tensor input_embeddings() const override { return embeddings_->words(); }

 private:
  DistilBertConfig config_;
  std::shared_ptr<DistilBertEmbeddings> embeddings_;
  std::vector<std::shared_ptr<DistilBertLayer>> layers_;
};

}  // namespace levin::huggingface
