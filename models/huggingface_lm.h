// A language model of a Hugging Face folder, trained further or from new weights:
//
//   model: {class_path: HuggingFaceLM, init_args: {path: gpt2, save_to: tuned}}
//
// Causal (GPT-2, Llama and its relatives): batches (x, y), tokens and the token that follows each, (B, T) int64, as
// TextFile and TokenFileData give them; with max_new_tokens, predict continues TextFile's prompt. Masked (BERT and its
// relatives): of x, some tokens are hidden and predicted.
#pragma once

#include "levin/models/huggingface_module.h"

namespace levin {

/// Options of HuggingFaceLM.
struct HuggingFaceLMOptions {
  std::string path = "";
  bool from_scratch = false;
  double mlm_probability = 0.15;
  std::optional<int64_t> mask_token_id = std::nullopt;
  int64_t max_new_tokens = 0;
  double temperature = 1.0;
  int64_t top_k = 0;
  std::optional<double> dropout = std::nullopt;
  bool ignore_mismatched_sizes = false;
  double lr = 5e-5;
  int64_t warmup_steps = 0;
  double weight_decay = 0.01;
  std::vector<std::string> freeze = {};
  std::string save_to = "";
  ByteSize max_shard_size = {50'000'000'000};
  EnumOption<WhichCheckpoint> save_weights = WhichCheckpoint::best;

  template <class = void>
  static auto fields() {
    using O = HuggingFaceLMOptions;
    return settings_fields<O>(
        levin::fields(
            field("mlm_probability", &O::mlm_probability, "masked models: fraction of the tokens that are predicted")
                .above(0.0)
                .max(1.0),
            field("mask_token_id", &O::mask_token_id,
                  "masked models: the token that hides others; null: the mask token in the folder's tokenizer.json")
                .check([](const auto& id) { return !id || *id >= 0; }, ">= 0"),
            field("max_new_tokens", &O::max_new_tokens,
                  "predict, causal models: tokens added to the prompt; 0: predict gives the logits")
                .min(0),
            field("temperature", &O::temperature, "predict: 0 takes the likeliest token, 1 draws as trained").min(0.0),
            field("top_k", &O::top_k, "predict: draw among the k likeliest tokens; 0: among all").min(0)),
        "start weights of a different shape anew instead of failing",
        "patterns of parameters that are not trained, as in a shell: \"model.transformer.wte.*\"");
  }
};

/// A batch for masked language modeling: what the model sees, and what it predicts.
struct MaskedTokens {
  at::Tensor ids;     // (B, T) int64: of the predicted tokens 80% are the mask, 10% any token, 10% themselves
  at::Tensor labels;  // (B, T) int64: the predicted tokens, -100 elsewhere
};

/// Hides tokens as in the training of BERT (Devlin et al. 2019, section 3.1). Tokens equal to `pad` are not predicted.
/// Draws from the default generator of ids' device.
[[nodiscard]] MaskedTokens mask_tokens(const at::Tensor& ids, double probability, int64_t mask_token_id,
                                       int64_t vocab_size, std::optional<int64_t> pad = std::nullopt);

/// A causal or masked language model, by the folder's config.json. Logs train_loss, val_loss and test_loss.
class HuggingFaceLM final : public HuggingFaceModule {
 public:
  using Options = HuggingFaceLMOptions;
  /// Throws ConfigError if a masked model's mask token is neither given nor found, or max_new_tokens is set for it.
  explicit HuggingFaceLM(HuggingFaceLMOptions options);

  /// Throws ConfigError if TextFile's tokens do not fit the model.
  void configure_model() override;

  /// ids: (B, T) int64; returns logits (B, T, vocabulary).
  at::Tensor forward(const at::Tensor& ids) override;
  /// Returns the mean cross entropy of a predicted token, in nats. A masked model's batches count by their predicted
  /// tokens, in training (set_loss_weight) as in the means of validations and tests.
  at::Tensor training_step(const Batch& batch) override;
  void validation_step(const Batch& batch) override { log_loss("val_loss", batch); }
  void test_step(const Batch& batch) override { log_loss("test_loss", batch); }
  /// Returns the logits of batch[0], or with max_new_tokens its rows continued, (B, T + max_new_tokens) int64. The
  /// tokens drawn depend on the run's seed and batch_idx. Every token runs the whole model again.
  at::Tensor predict_step(const Batch& batch, int64_t batch_idx) override;

  [[nodiscard]] const HuggingFaceLMOptions& options() const { return options_; }
  [[nodiscard]] bool is_masked() const { return is_masked_; }

 private:
  // `predicted`: how many tokens of a masked model's batch are, () on their device; of a causal one undefined.
  struct Loss {
    at::Tensor mean, predicted;
  };
  Loss loss_of(const Batch& batch);
  void weigh_by(const at::Tensor& predicted);
  void log_loss(const char* name, const Batch& batch);

  HuggingFaceLMOptions options_;
  bool is_masked_ = false;
  int64_t mask_token_id_ = -1;
  int64_t vocab_size_ = 0;
};

}  // namespace levin
