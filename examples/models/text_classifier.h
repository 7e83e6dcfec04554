// Classifies text with BERT or XLM-R: the encoder of encoder.h and a head on the features of the first token. `levin`
// trains it as class_path: TextClassifier, on the batches of TextCsv.
//
// Parameters are named as in Hugging Face's files: roberta.… and classifier.dense, classifier.out_proj for XLM-R,
// bert.… and classifier for BERT, so that `weights:` of a run file loads them unchanged.
#pragma once

#include "encoder.h"

struct TextClassifierOptions {
  Architecture architecture = Architecture::xlmr_base;
  int64_t num_hidden_layers = 0;  // 0, here and below: the architecture's value
  int64_t hidden_size = 0;
  int64_t num_attention_heads = 0;
  int64_t intermediate_size = 0;
  int64_t vocab_size = 0;
  int64_t max_position_embeddings = 0;
  std::optional<int64_t> pad_token_id = std::nullopt;  // unset: XLM-R's is 1, BERT's 0
  int64_t num_classes = 0;                             // 0: as many as the data has
  double dropout = 0.1;
  double lr = 2e-5;            // AdamW's step size after the warmup
  int64_t warmup_steps = 0;    // optimizer steps of linear warmup; then lr falls linearly to 0
  double weight_decay = 0.01;  // of matrices and embeddings; biases and norms have none

  template <class = void>
  static auto fields() {
    using O = TextClassifierOptions;
    return levin::fields(
        levin::field("architecture", &O::architecture,
                     "the published encoder whose numbers are used where none is set"),
        levin::field("num_hidden_layers", &O::num_hidden_layers, "layers; 0: the architecture's").min(0),
        levin::field("hidden_size", &O::hidden_size, "width, a multiple of the heads; 0: the architecture's").min(0),
        levin::field("num_attention_heads", &O::num_attention_heads, "heads of a layer; 0: the architecture's").min(0),
        levin::field("intermediate_size", &O::intermediate_size, "width within the MLPs; 0: the architecture's").min(0),
        levin::field("vocab_size", &O::vocab_size, "tokens; 0: the architecture's").min(0),
        levin::field("max_position_embeddings", &O::max_position_embeddings, "positions; 0: the architecture's").min(0),
        levin::field("pad_token_id", &O::pad_token_id, "the token that is padding; null: the architecture's")
            .check([](const auto& id) { return !id || *id >= 0; }, ">= 0"),
        levin::field("num_classes", &O::num_classes, "classes; 0: as many as the data has").min(0),
        levin::field("dropout", &O::dropout, "share dropped while training").min(0.0).below(1.0),
        levin::field("lr", &O::lr, "AdamW's step size after the warmup").above(0.0),
        levin::field("warmup_steps", &O::warmup_steps, "optimizer steps of linear warmup").min(0),
        levin::field("weight_decay", &O::weight_decay, "of all but biases and norms").min(0.0));
  }
};

class TextClassifier : public levin::LightningModule {
 public:
  using Options = TextClassifierOptions;
  /// Throws ConfigError for numbers that do not fit together.
  explicit TextClassifier(TextClassifierOptions options = {});

  /// Makes the layers if the data sets num_classes; throws ConfigError if the data's tokens do not fit the encoder.
  void configure_model() override;

  /// ids: (B, T) int64 with padding; returns logits (B, num_classes).
  torch::Tensor forward(const torch::Tensor& ids) override;
  torch::Tensor training_step(const levin::Batch& batch) override;
  void validation_step(const levin::Batch& batch) override { evaluate(batch, "val"); }
  void test_step(const levin::Batch& batch) override { evaluate(batch, "test"); }
  /// The likeliest classes: (B) int64.
  torch::Tensor predict_step(const levin::Batch& batch) override;
  /// AdamW in two groups, with a linear warmup and a linear decay to 0 at the run's end.
  levin::OptimizerConfig configure_optimizers() override;

  [[nodiscard]] const TextClassifierOptions& options() const { return options_; }
  [[nodiscard]] const EncoderShape& shape() const { return shape_; }

 private:
  void make_layers(int64_t num_classes);
  void evaluate(const levin::Batch& batch, const std::string& stage);

  TextClassifierOptions options_;
  EncoderShape shape_;
  Encoder encoder_{nullptr};
  torch::nn::Linear dense_{nullptr};  // XLM-R's head has one more layer; BERT has the encoder's pooler instead
  torch::nn::Linear logits_{nullptr};
};
