// GPT-2 (Radford et al. 2019): learned positions, causal attention, norms before each part.
//
// Shapes: B batch, T tokens, C n_embd.
#pragma once

#include <memory>
#include <vector>

#include "levin/models/huggingface/activation.h"
#include "levin/models/huggingface/family_configs.h"
#include "levin/models/huggingface/layers.h"
#include "levin/models/huggingface/pretrained_model.h"

namespace levin::huggingface {

class GPT2Block : public torch::nn::Module {
 public:
  GPT2Block(const GPT2Config& config, int64_t number);
  /// x: (B, T, C); mask: (B or 1, 1, T, T) bool, or undefined: all tokens that are not later.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask);

 private:
  at::Tensor attend_to(const at::Tensor& x, const at::Tensor& mask);

  int64_t heads_;
  double attention_dropout_, dropout_, scale_;
  Activation act_;
  std::shared_ptr<LayerNorm> ln_1_, ln_2_;
  std::shared_ptr<Conv1D> c_attn_, attn_proj_, c_fc_, mlp_proj_;
};

class GPT2Model : public PretrainedModel {
 public:
  explicit GPT2Model(const PretrainedConfig& config);
  ModelOutput forward(const ModelInputs& inputs) override;
  [[nodiscard]] at::Tensor input_embeddings() const override { return wte_->weight; }

 private:
  GPT2Config config_;
  std::shared_ptr<Embedding> wte_, wpe_;
  std::vector<std::shared_ptr<GPT2Block>> blocks_;
  std::shared_ptr<LayerNorm> ln_f_;
};

}  // namespace levin::huggingface
