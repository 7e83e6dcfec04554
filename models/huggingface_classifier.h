// Texts or images into classes, several labels or numbers by a model of a Hugging Face folder:
//
//   model: {class_path: HuggingFaceClassifier, init_args: {path: bert-base-uncased, save_to: tuned}}
//
// Batches: (ids, label), (ids, attention_mask, label) or (images, label), as TextCsv and ImageFolderData give them: ids
// and attention_mask (B, T), images (B, channels, height, width), label (B) int64; of several labels (B, num_labels),
// 0 or 1 each; of a regression (B) or (B, num_labels). In (ids, label) what is the config's pad_token_id is padding.
#pragma once

#include <optional>

#include "levin/models/huggingface_module.h"

namespace levin {

/// What labels are, by transformers' words: one class of several, yes or no for each class, or numbers.
enum class ProblemType { single_label_classification, multi_label_classification, regression };
template <>
struct EnumNames<ProblemType> {
  static constexpr EnumName<ProblemType> names[] = {
      {"single_label_classification", ProblemType::single_label_classification},
      {"multi_label_classification", ProblemType::multi_label_classification},
      {"regression", ProblemType::regression}};
};

/// Options of HuggingFaceClassifier.
struct HuggingFaceClassifierOptions {
  std::string path = "";
  bool from_scratch = false;
  int64_t num_labels = 0;
  std::optional<EnumOption<ProblemType>> problem_type = std::nullopt;
  std::optional<double> dropout = std::nullopt;
  bool ignore_mismatched_sizes = false;
  double lr = 2e-5;
  int64_t warmup_steps = 0;
  double weight_decay = 0.01;
  std::vector<std::string> freeze = {};
  std::string save_to = "";
  ByteSize max_shard_size = {50'000'000'000};
  EnumOption<WhichCheckpoint> save_weights = WhichCheckpoint::best;

  template <class = void>
  static auto fields() {
    using O = HuggingFaceClassifierOptions;
    return settings_fields<O>(
        levin::fields(
            field("num_labels", &O::num_labels, "classes; 0: the data's, or config.json's if the data has none").min(0),
            field("problem_type", &O::problem_type,
                  "the loss: cross entropy, binary cross entropy of each label, or mean squared error; null: "
                  "config.json's, else regression for one label, and for several what the first batch's labels are")),
        "start weights of a different shape anew, such as a head with other classes, instead of failing",
        "patterns of parameters that are not trained, as in a shell: \"model.bert.embeddings.*\"");
  }
};

/// A classifier or regressor of text or images. Logs train_loss, val_loss and test_loss, and for classes val_acc and
/// test_acc. Steps throw Error for labels whose shape does not fit the problem type.
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
  at::Tensor training_step(const Batch& batch) override;
  void validation_step(const Batch& batch) override { evaluate(batch, "val"); }
  void test_step(const Batch& batch) override { evaluate(batch, "test"); }
  /// Returns the likeliest classes, (B) int64; of several labels 1 where the probability is above a half, (B,
  /// num_labels) int64; of a regression the numbers, (B) or (B, num_labels). Publishes "probability" with step_output,
  /// of the class or of each label.
  at::Tensor predict_step(const Batch& batch) override;

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
