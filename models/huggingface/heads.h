// What stands on a bare model: classifiers and language models, as transformers has them for each family.
//
// Shapes: B batch, T tokens, V vocabulary.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "levin/models/huggingface/pretrained_model.h"

namespace levin::huggingface {

/// What a model computes: hidden states (base), or the logits of a head.
enum class Task { base, sequence_classification, token_classification, masked_lm, causal_lm, image_classification };

/// The part of a model that turns a bare model's features into logits. Its modules are registered in the model that it
/// belongs to.
class Head {
 public:
  virtual ~Head() = default;
  [[nodiscard]] virtual at::Tensor logits(const ModelOutput& features, const ModelInputs& inputs, bool is_training) = 0;
};

/// A bare model, under its prefix, and a head.
class ModelWithHead : public PretrainedModel {
 public:
  ModelWithHead(PretrainedConfig config, std::shared_ptr<PretrainedModel> base);
  ModelOutput forward(const ModelInputs& inputs) override;
  [[nodiscard]] at::Tensor input_embeddings() const override { return base_->input_embeddings(); }

  [[nodiscard]] std::vector<std::pair<std::string, std::string>> peft_names() const override {
    return base_->peft_names();
  }

  [[nodiscard]] PretrainedModel& base() { return *base_; }
  void set_head(std::unique_ptr<Head> head) { head_ = std::move(head); }
  using PretrainedModel::add_alias;

 private:
  std::shared_ptr<PretrainedModel> base_;
  std::unique_ptr<Head> head_;
};

/// Gives `model` the head of `task`, which its family has.
void add_bert_head(ModelWithHead& model, Task task);
void add_distilbert_head(ModelWithHead& model, Task task);
void add_gpt2_head(ModelWithHead& model, Task task);
void add_llama_head(ModelWithHead& model, Task task);
void add_vit_head(ModelWithHead& model);

}  // namespace levin::huggingface
