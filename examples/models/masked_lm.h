// BERT's masked language model (Devlin et al. 2019): the encoder of encoder.h and a layer that gives each token its
// logits over the vocabulary. `levin` trains it as class_path: MaskedLM, on the tokens of TextFile.
#pragma once

#include "encoder.h"

struct MaskedLMOptions {
  Architecture architecture = Architecture::bert_base;
  int64_t num_hidden_layers = 0;  // 0, here and below: the architecture's value
  int64_t hidden_size = 0;
  int64_t num_attention_heads = 0;
  int64_t intermediate_size = 0;
  int64_t vocab_size = 0;
  double masked = 0.15;  // fraction of the tokens that are hidden and predicted
  double dropout = 0.1;
  double lr = 1e-4;

  template <class = void>
  static auto fields() {
    using O = MaskedLMOptions;
    return levin::fields(
        levin::field("architecture", &O::architecture,
                     "the published encoder whose numbers are used where none is set"),
        levin::field("num_hidden_layers", &O::num_hidden_layers, "layers; 0: the architecture's").min(0),
        levin::field("hidden_size", &O::hidden_size, "width, a multiple of the heads; 0: the architecture's").min(0),
        levin::field("num_attention_heads", &O::num_attention_heads, "heads of a layer; 0: the architecture's").min(0),
        levin::field("intermediate_size", &O::intermediate_size, "width within the MLPs; 0: the architecture's").min(0),
        levin::field("vocab_size", &O::vocab_size, "tokens, the last of which is the mask; 0: the architecture's")
            .min(0),
        levin::field("masked", &O::masked, "share of the tokens that are hidden, and predicted").above(0.0).max(1.0),
        levin::field("dropout", &O::dropout, "share dropped while training").min(0.0).below(1.0),
        levin::field("lr", &O::lr, "AdamW's step size").above(0.0));
  }
};

class MaskedLM : public levin::LightningModule {
 public:
  using Options = MaskedLMOptions;
  explicit MaskedLM(MaskedLMOptions options = {});

  /// ids: (B, T) int64; returns logits (B, T, V).
  torch::Tensor forward(const torch::Tensor& ids) override;
  torch::Tensor training_step(const levin::Batch& batch) override;
  void validation_step(const levin::Batch& batch) override;
  levin::OptimizerConfig configure_optimizers() override;

  [[nodiscard]] const MaskedLMOptions& options() const { return options_; }

 private:
  /// Returns the mean loss of the tokens that it hides, and their number: (). A small batch may have none.
  std::pair<torch::Tensor, torch::Tensor> loss_of(const torch::Tensor& ids);

  MaskedLMOptions options_;
  EncoderShape shape_;
  Encoder encoder_{nullptr};
  torch::nn::Linear decoder_{nullptr};
};
