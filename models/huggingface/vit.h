// ViT (Dosovitskiy et al. 2021): an image's patches through an encoder with norms before each part. Parameters have the
// names of the files, which transformers 5 maps to other names of its own when it reads them.
//
// Shapes: B batch, T patches and the class token before them, C hidden_size.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "levin/models/huggingface/activation.h"
#include "levin/models/huggingface/family_configs.h"
#include "levin/models/huggingface/layers.h"
#include "levin/models/huggingface/pretrained_model.h"

namespace levin::huggingface {

/// One row of C numbers for each patch: a linear map, held as the weight of a convolution.
class ViTPatches : public torch::nn::Module, public HasStartingWeights {
 public:
  explicit ViTPatches(const ViTConfig& config);
  at::Tensor forward(const at::Tensor& pixels);  // (B, channels, height, width) to (B, T - 1, C)
  void start(const std::string& name, at::Tensor& parameter, double deviation) override;

 private:
  at::Tensor weight_, bias_;
  int64_t stride_;
};

class ViTEmbeddings : public torch::nn::Module, public HasStartingWeights {
 public:
  explicit ViTEmbeddings(const ViTConfig& config);
  at::Tensor forward(const at::Tensor& pixels);
  /// Truncated normal numbers.
  void start(const std::string& name, at::Tensor& parameter, double deviation) override;

 private:
  double dropout_;
  at::Tensor cls_token_, positions_;
  std::shared_ptr<ViTPatches> patches_;
};

class ViTLayer : public torch::nn::Module {
 public:
  explicit ViTLayer(const ViTConfig& config);
  at::Tensor forward(const at::Tensor& x);  // (B, T, C)

 private:
  int64_t heads_;
  double attention_dropout_, dropout_;
  Activation act_;
  std::shared_ptr<Linear> query_, key_, value_, attended_, wide_, narrow_;
  std::shared_ptr<LayerNorm> norm_before_, norm_after_;
};

class ViTModel : public PretrainedModel {
 public:
  ViTModel(const PretrainedConfig& config, bool add_pooling_layer);
  ModelOutput forward(const ModelInputs& inputs) override;
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> peft_names() const override;

 private:
  ViTConfig config_;
  std::shared_ptr<ViTEmbeddings> embeddings_;
  std::vector<std::shared_ptr<ViTLayer>> layers_;
  std::shared_ptr<LayerNorm> norm_;
  std::shared_ptr<Linear> pooler_;  // null: none
  Activation pooler_act_;
};

}  // namespace levin::huggingface
