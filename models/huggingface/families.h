// The bare models of the families, made from their configs with parameters that have no values yet. Internal; users
// call auto_model.h. Each function throws ConfigError with all problems of the config.
#pragma once

#include <memory>

#include "levin/models/huggingface/pretrained_model.h"

namespace levin::huggingface {

/// BERT (Devlin et al. 2019), RoBERTa (Liu et al. 2019), XLM-R (Conneau et al. 2020) and CamemBERT (Martin et al.
/// 2020): learned positions, bidirectional attention, norms after each residual addition.
[[nodiscard]] std::shared_ptr<PretrainedModel> make_bert(const PretrainedConfig& config, bool has_pooler);
/// DistilBERT (Sanh et al. 2019): BERT's layers, but fewer, without token types and pooler.
[[nodiscard]] std::shared_ptr<PretrainedModel> make_distilbert(const PretrainedConfig& config);
/// ViT (Dosovitskiy et al. 2021): an image's patches through an encoder with norms before attention and MLP. Parameters
/// have the names of the files; transformers 5 maps these to different names when it reads them.
[[nodiscard]] std::shared_ptr<PretrainedModel> make_vit(const PretrainedConfig& config, bool has_pooler);
/// GPT-2 (Radford et al. 2019): learned positions, causal attention, norms before attention and MLP.
[[nodiscard]] std::shared_ptr<PretrainedModel> make_gpt2(const PretrainedConfig& config);
/// Llama (Touvron et al. 2023), Mistral (Jiang et al. 2023), Qwen2, Qwen3, Gemma and Phi-3: rotary positions, RMSNorm
/// before attention and MLP, a gated MLP, fewer key/value heads than query heads.
[[nodiscard]] std::shared_ptr<PretrainedModel> make_llama(const PretrainedConfig& config);

}  // namespace levin::huggingface
