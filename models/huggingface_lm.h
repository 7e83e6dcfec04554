// A language model of a Hugging Face folder, trained further or from new weights:
//
//   model: {class_path: HuggingFaceLM, init_args: {path: gpt2, save_to: tuned}}
//
// Causal (GPT-2, Llama and its relatives): batches (x, y), tokens and the token that follows each, (B, T) int64, as
// TextFile and TokenFileData give them. Masked (BERT and its relatives): of x, some tokens are hidden and predicted.
#pragma once

#include "levin/models/huggingface_module.h"

namespace levin {

struct HuggingFaceLMOptions {
  std::string path = "";
  bool from_scratch = false;
  double mlm_probability = 0.15;
  std::optional<int64_t> mask_token_id = std::nullopt;
  std::optional<double> dropout = std::nullopt;
  bool ignore_mismatched_sizes = false;
  double lr = 5e-5;
  int64_t warmup_steps = 0;
  double weight_decay = 0.01;
  std::vector<std::string> freeze = {};
  std::string save_to = "";
  ByteSize max_shard_size = {50'000'000'000};
  WhichCheckpoint save_weights = WhichCheckpoint::best;

  template <class = void>
  static auto fields() {
    using O = HuggingFaceLMOptions;
    return levin::fields(
        field("path", &O::path, "a folder with config.json and, unless from_scratch, safetensors")
            .not_empty()
            .ranks_may_differ(),
        field("from_scratch", &O::from_scratch, "new weights for the folder's config.json instead of its own"),
        field("mlm_probability", &O::mlm_probability, "masked models: share of the tokens that are predicted")
            .above(0.0)
            .max(1.0),
        field("mask_token_id", &O::mask_token_id,
              "masked models: the token that hides others; null: that of the folder's tokenizer.json")
            .check([](const auto& id) { return !id || *id >= 0; }, ">= 0"),
        field("dropout", &O::dropout, "all shares dropped while training; null: config.json's")
            .check([](const auto& share) { return !share || (*share >= 0 && *share < 1); }, ">= 0 and < 1"),
        field("ignore_mismatched_sizes", &O::ignore_mismatched_sizes,
              "start weights of another shape anew instead of failing"),
        field("lr", &O::lr, "AdamW's step size after the warmup").above(0.0),
        field("warmup_steps", &O::warmup_steps, "optimizer steps of linear warmup; then lr falls to 0 on a line")
            .min(0),
        field("weight_decay", &O::weight_decay, "of all but biases and norms").min(0.0),
        field("freeze", &O::freeze,
              "patterns of parameters that are not trained, as in a shell: \"model.transformer.wte.*\""),
        field("save_to", &O::save_to, "a folder for save_pretrained at the end of fit; \"\": none").ranks_may_differ(),
        field("max_shard_size", &O::max_shard_size, "of the files in save_to"),
        field("save_weights", &O::save_weights,
              "what save_to holds: best, the weights of the best checkpoint by its callback's monitor (the last ones "
              "without a monitor), or last"));
  }
};

/// Which tokens are hidden, and by what.
struct MaskedTokens {
  at::Tensor ids;     // (B, T) int64: of the predicted tokens 80% are the mask, 10% any token, 10% themselves
  at::Tensor labels;  // (B, T) int64: the predicted tokens, -100 elsewhere
};

/// As BERT was trained (Devlin et al. 2019, section 3.1). What equals `pad` is not predicted. Draws from the default
/// generator of ids' device.
[[nodiscard]] MaskedTokens mask_tokens(const at::Tensor& ids, double probability, int64_t mask_token_id,
                                       int64_t vocab_size, std::optional<int64_t> pad = std::nullopt);

class HuggingFaceLM final : public HuggingFaceModule {
 public:
  using Options = HuggingFaceLMOptions;
  /// Throws ConfigError if the model's masked token is neither given nor found.
  explicit HuggingFaceLM(HuggingFaceLMOptions options);

  /// Throws ConfigError if TextFile's tokens do not fit the model.
  void configure_model() override;

  /// ids: (B, T) int64; returns logits (B, T, vocabulary).
  at::Tensor forward(const at::Tensor& ids) override;
  /// The mean cross entropy of a predicted token, in nats. A masked model's batches count by their predicted tokens, in
  /// training (set_loss_weight) as in the means of validations and tests.
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override;
  void validation_step(const Batch& batch, int64_t batch_idx) override;
  void test_step(const Batch& batch, int64_t batch_idx) override;

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
