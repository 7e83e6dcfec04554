// Llama (Touvron et al. 2023), Mistral (Jiang et al. 2023), Qwen2, Qwen3, Gemma and Phi-3: rotary positions, RMSNorm
// before each part, a gated MLP, fewer heads of keys and values than of queries.
//
// Shapes: B batch, T tokens, C hidden_size, R rotated numbers of a head.
#pragma once

#include <array>
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
  /// uses `narrow`, others `full`. cosines, sines: (T, R).
  at::Tensor forward(const at::Tensor& x, const at::Tensor& full, const at::Tensor& narrow, const at::Tensor& cosines,
                     const at::Tensor& sines);

 private:
  at::Tensor attend_to(const at::Tensor& x, const at::Tensor& mask, const at::Tensor& cosines, const at::Tensor& sines);

  std::array<at::Tensor, 3> query_key_value(const at::Tensor& x);  // each (B, T, heads * width)
  at::Tensor mlp(const at::Tensor& x);

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
  explicit LlamaModel(const PretrainedConfig& config);
  ModelOutput forward(const ModelInputs& inputs) override;
  [[nodiscard]] at::Tensor input_embeddings() const override { return embed_tokens_->weight; }

 private:
  [[nodiscard]] at::Tensor frequencies(int64_t tokens) const;

  LlamaConfig config_;
  at::Tensor frequencies_;       // no parameter and no buffer: stays float32 in every precision
  at::Tensor long_frequencies_;  // of longrope, in samples longer than those of pretraining
  std::shared_ptr<Embedding> embed_tokens_;
  std::vector<std::shared_ptr<LlamaLayer>> layers_;
  std::shared_ptr<RMSNorm> norm_;
};

}  // namespace levin::huggingface
