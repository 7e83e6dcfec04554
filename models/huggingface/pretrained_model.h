// A model in Hugging Face's layout: its parameters have the names of Hugging Face's files. Made by AutoModel and its
// siblings (auto_model.h).
//
//   auto model = levin::AutoModelForSequenceClassification::from_pretrained("bert-base-uncased", {.num_labels = 3});
//   at::Tensor logits = model->forward({.input_ids = ids, .attention_mask = mask}).logits;
//   model->save_pretrained("tuned");
#pragma once

#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "levin/core/options/units.h"
#include "levin/core/weight_use.h"
#include "levin/models/huggingface/pretrained_config.h"

namespace levin {
class WeightsSource;
}

namespace levin {

/// The inputs of a forward pass; B batch, T tokens. A tensor left undefined means what it means in transformers: all
/// tokens are seen, all are of type 0.
struct ModelInputs {
  at::Tensor input_ids = {};       // (B, T) int64
  at::Tensor attention_mask = {};  // (B, T), 0 for padding
  at::Tensor token_type_ids = {};  // (B, T) int64; BERT and its relatives
  at::Tensor pixel_values = {};    // (B, channels, height, width); ViT
};

/// The outputs of a forward pass; B batch, T tokens, C hidden size. What a model does not compute is undefined.
struct ModelOutput {
  at::Tensor last_hidden_state = {};  // (B, T, C)
  at::Tensor pooler_output = {};      // (B, C) of a bare model that has a pooler
  at::Tensor logits = {};             // of a head: (B, labels), (B, T, labels) or (B, T, vocabulary)
};

/// Options of save_pretrained.
struct SavePretrainedOptions {
  ByteSize max_shard_size = {50'000'000'000};  // transformers' default; a larger model is split into several files

  template <class = void>
  static auto fields() {
    using O = SavePretrainedOptions;
    return levin::fields(
        field("max_shard_size", &O::max_shard_size, "bytes of tensors in one file, unless one tensor is larger")
            .check([](ByteSize size) { return size.bytes > 0; }, "> 0"));
  }
};

/// The base of Hugging Face models, bare or with a head.
class PretrainedModel : public torch::nn::Module, public HasTiedWeights, public HasPeftNames {
 public:
  explicit PretrainedModel(PretrainedConfig config) : config_(std::move(config)) {}

  /// Throws Error for inputs that the model cannot take, such as more tokens than it has positions.
  virtual ModelOutput forward(const ModelInputs& inputs) = 0;

  [[nodiscard]] const PretrainedConfig& config() const { return config_; }
  [[nodiscard]] PretrainedConfig& config() { return config_; }

  /// transformers' name of the class: "BertForSequenceClassification".
  [[nodiscard]] const std::string& class_name() const { return class_name_; }
  /// Returns what a head's model calls the model below it ("bert"); of a bare model the name that files may have in
  /// front of its tensors.
  [[nodiscard]] const std::string& base_model_prefix() const { return prefix_; }
  /// Returns the folder it was loaded from, or "".
  [[nodiscard]] const std::string& source() const { return source_; }
  /// A second name under which a file may hold one of the model's parameters.
  struct Alias {
    std::string alias;        // "lm_head.weight" of tied embeddings
    std::string name;         // "model.embed_tokens.weight"
    bool is_written = false;  // transformers expects it too, and does not compute with it
  };
  [[nodiscard]] const std::vector<Alias>& aliases() const { return aliases_; }
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> tied_weights() const override;
  /// Returns nothing if transformers' modules have the names of the tensors in files.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> peft_names() const override { return {}; }
  /// Returns the matrix of input tokens; undefined if there is none.
  [[nodiscard]] virtual at::Tensor input_embeddings() const { return {}; }

  /// Writes config.json and model.safetensors, or shards and their index, with LoRA's adapters merged into the weights,
  /// and copies the tokenizer's files of the folder it was loaded from, so that from_pretrained here and in Python read
  /// it back. Each file is written whole or not at all; existing files of those names are replaced. Throws Error naming
  /// the path and cause, and for adapters that cannot be merged (check_merge).
  void save_pretrained(const std::string& folder, const SavePretrainedOptions& options = {}) const;
  /// Same as above, with these tensors instead of the model's own, by the model's names: weights gathered from several
  /// ranks.
  void save_tensors(const std::string& folder, const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                    const SavePretrainedOptions& options = {}) const;

  // For code that makes models.
  void set_class_name(std::string name) { class_name_ = std::move(name); }
  void set_source(std::string folder) { source_ = std::move(folder); }

 protected:
  /// Throws Error unless input_ids is (B, T) and attention_mask, if given, has its shape, and if a sample has more
  /// tokens than the model has `positions` (unset: any number).
  void check_ids(const ModelInputs& inputs, std::optional<int64_t> positions) const;
  void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }
  void add_alias(Alias alias) { aliases_.push_back(std::move(alias)); }

 private:
  PretrainedConfig config_;
  std::string class_name_ = "";
  std::string prefix_ = "";
  std::string source_ = "";
  std::vector<Alias> aliases_ = {};
};

}  // namespace levin

namespace levin::huggingface {

// Weights of a Hugging Face folder into a model, as from_pretrained of transformers does it.

/// Draws starting weights for the parameters of these names; for all if there are none.
void init_weights(PretrainedModel& model, const std::vector<std::string>& only = {});

/// What load_pretrained did with the parameters and the files' tensors.
struct LoadReport {
  size_t loaded = 0;
  std::vector<std::string> newly_initialized = {};  // parameters that the files do not have
  std::vector<std::string> unexpected = {};         // tensors of the files that the model does not have
  std::vector<std::string> mis_shaped = {};         // with both shapes; newly initialized too

  /// Returns one line; "" if all matched.
  [[nodiscard]] std::string str() const;
};

/// Copies the tensors of `folder`, which are `source`, into the model, converting their types: the base model's names
/// may have its prefix or not, whether the model has a head or not. Parameters that the files lack are started and
/// reported. Throws CheckpointError naming the folder for files that are missing or damaged, for tensors of another
/// shape unless `ignore_mismatched_sizes`, for a tied tensor that the files hold twice with different values, and if
/// none fits.
LoadReport load_pretrained(PretrainedModel& model, const WeightsSource& source, const std::string& folder,
                           bool ignore_mismatched_sizes);

}  // namespace levin::huggingface
