// Texts or images into classes, several labels or numbers by a model of a Hugging Face folder:
//
//   model: {class_path: HuggingFaceClassifier, init_args: {path: bert-base-uncased, save_to: tuned}}
//
// Batches: (ids, label), (ids, attention_mask, label) or (images, label), as TextCsv and ImageFolderData give them: ids
// and attention_mask (B, T), images (B, channels, height, width), label (B) int64; of several labels (B, num_labels),
// 0 or 1 each; of a regression (B) or (B, num_labels). In (ids, label) what is the config's pad_token_id is padding.
#pragma once

#include <array>
#include <optional>
#include <utility>

#include "levin/models/huggingface_module.h"

namespace levin {

/// What labels are, by transformers' words: one class of several, yes or no for each class, or numbers.
enum class ProblemType { single_label_classification, multi_label_classification, regression };
template <>
struct EnumNames<ProblemType> {
  static constexpr std::array names{std::pair{"single_label_classification", ProblemType::single_label_classification},
                                    std::pair{"multi_label_classification", ProblemType::multi_label_classification},
                                    std::pair{"regression", ProblemType::regression}};
};

struct HuggingFaceClassifierOptions {
  std::string path = "";
  bool from_scratch = false;
  int64_t num_labels = 0;
  std::optional<ProblemType> problem_type = std::nullopt;
  std::optional<double> dropout = std::nullopt;
  bool ignore_mismatched_sizes = false;
  double lr = 2e-5;
  int64_t warmup_steps = 0;
  double weight_decay = 0.01;
  std::vector<std::string> freeze = {};
  std::string save_to = "";
  ByteSize max_shard_size = {50'000'000'000};
  WhichCheckpoint save_weights = WhichCheckpoint::best;

  template <class = void>
  static auto fields() {
    using O = HuggingFaceClassifierOptions;
    return levin::fields(
        field("path", &O::path, "a folder with config.json and, unless from_scratch, safetensors")
            .not_empty()
            .ranks_may_differ(),
        field("from_scratch", &O::from_scratch, "new weights for the folder's config.json instead of its own"),
        field("num_labels", &O::num_labels, "classes; 0: the data's, or config.json's if the data has none").min(0),
        field(
            "problem_type", &O::problem_type,
            "the loss: cross entropy, binary cross entropy of each label, or mean squared error; null: config.json's, "
            "else regression of one label, and of several what the first batch's labels are"),
        field("dropout", &O::dropout, "all shares dropped while training; null: config.json's")
            .check([](const auto& share) { return !share || (*share >= 0 && *share < 1); }, ">= 0 and < 1"),
        field("ignore_mismatched_sizes", &O::ignore_mismatched_sizes,
              "start weights of another shape anew, such as a head with other classes, instead of failing"),
        field("lr", &O::lr, "AdamW's step size after the warmup").above(0.0),
        field("warmup_steps", &O::warmup_steps, "optimizer steps of linear warmup; then lr falls to 0 on a line")
            .min(0),
        field("weight_decay", &O::weight_decay, "of all but biases and norms").min(0.0),
        field("freeze", &O::freeze,
              "patterns of parameters that are not trained, as in a shell: \"model.bert.embeddings.*\""),
        field("save_to", &O::save_to, "a folder for save_pretrained at the end of fit; \"\": none").ranks_may_differ(),
        field("max_shard_size", &O::max_shard_size, "of the files in save_to"),
        field("save_weights", &O::save_weights,
              "what save_to holds: best, the weights of the best checkpoint by its callback's monitor (the last ones "
              "without a monitor), or last"));
  }
};

class HuggingFaceClassifier final : public HuggingFaceModule {
 public:
  using Options = HuggingFaceClassifierOptions;
  /// Makes the model if num_labels is set.
  explicit HuggingFaceClassifier(HuggingFaceClassifierOptions options);

  /// Makes the model if the number of labels is the data's, and writes the data's names of classes into its config.
  /// Throws ConfigError if the data's tokens or classes do not fit the model.
  void configure_model() override;

  /// ids (B, T) or images (B, channels, height, width); returns logits (B, num_labels).
  at::Tensor forward(const at::Tensor& input) override;
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override;
  void validation_step(const Batch& batch, int64_t) override { evaluate(batch, "val"); }
  void test_step(const Batch& batch, int64_t) override { evaluate(batch, "test"); }
  /// The likeliest classes, (B) int64; of several labels 1 where the probability is above a half, (B, num_labels)
  /// int64; of a regression the numbers, (B) or (B, num_labels). Publishes "probability" with step_output, of the class
  /// or of each label.
  at::Tensor predict_step(const Batch& batch, int64_t batch_idx) override;

  [[nodiscard]] const HuggingFaceClassifierOptions& options() const { return options_; }

 private:
  [[nodiscard]] ModelInputs inputs_of(const at::Tensor& first) const;
  at::Tensor logits_of(const Batch& batch);
  void evaluate(const Batch& batch, const std::string& stage);
  [[nodiscard]] std::optional<ProblemType> known_problem_type() const;
  ProblemType problem_type(const at::Tensor& label);
  at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& label);
  void make(PretrainedConfig config, int64_t num_labels, const std::vector<std::string>& classes);

  HuggingFaceClassifierOptions options_;
};

}  // namespace levin
