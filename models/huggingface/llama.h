// Llama (Touvron et al. 2023), Mistral (Jiang et al. 2023), Qwen2 and Qwen3: rotary positions, RMSNorm before each
// part, a gated MLP, fewer heads of keys and values than of queries.
//
// Shapes: B batch, T tokens, C hidden_size, D width of a head.
#pragma once

#include <memory>
#include <vector>

#include "levin/models/huggingface/activation.h"
#include "levin/models/huggingface/family_configs.h"
#include "levin/models/huggingface/layers.h"
#include "levin/models/huggingface/pretrained_model.h"

namespace levin::huggingface {

class LlamaLayer : public torch::nn::Module {
 public:
  LlamaLayer(const LlamaConfig& config, int64_t number);
  /// x: (B, T, C); masks: (B or 1, 1, T, T) bool, or undefined: all tokens that are not later. A layer with a window
  /// uses `narrow`, others `full`. cosines, sines: (T, D).
  at::Tensor forward(const at::Tensor& x, const at::Tensor& full, const at::Tensor& narrow, const at::Tensor& cosines,
                     const at::Tensor& sines);

 private:
  at::Tensor attend_to(const at::Tensor& x, const at::Tensor& mask, const at::Tensor& cosines, const at::Tensor& sines);

  int64_t heads_, key_value_heads_;
  double dropout_;
  bool has_window_;
  Activation act_;
  std::shared_ptr<Linear> q_proj_, k_proj_, v_proj_, o_proj_, gate_proj_, up_proj_, down_proj_;
  std::shared_ptr<RMSNorm> q_norm_, k_norm_;  // Qwen3; null elsewhere
  std::shared_ptr<RMSNorm> input_norm_, post_norm_;
};

class LlamaModel : public PretrainedModel {
 public:
  explicit LlamaModel(const PretrainedConfig& config);
  ModelOutput forward(const ModelInputs& inputs) override;
  [[nodiscard]] at::Tensor input_embeddings() const override { return embed_tokens_->weight; }

 private:
  LlamaConfig config_;
  at::Tensor frequencies_;  // no parameter and no buffer: stays float32 in every precision
  std::shared_ptr<Embedding> embed_tokens_;
  std::vector<std::shared_ptr<LlamaLayer>> layers_;
  std::shared_ptr<RMSNorm> norm_;
};

}  // namespace levin::huggingface
