// Models by what a folder's config.json says they are.
//
//   auto model = levin::AutoModelForCausalLM::from_pretrained("Qwen2-0.5B");
//
// Families (model_type): bert, roberta, xlm-roberta, camembert, distilbert, gpt2, llama, mistral, qwen2, qwen3, gemma,
// phi3, vit.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/models/huggingface/heads.h"
#include "levin/models/huggingface/pretrained_model.h"

namespace levin {

/// Options of from_pretrained, by transformers' names.
struct FromPretrainedOptions {
  std::optional<int64_t> num_labels = std::nullopt;  // of a classification head; unset: config.json's
  std::optional<double> dropout = std::nullopt;      // all of the model's dropout probabilities; unset: config.json's
  bool ignore_mismatched_sizes = false;              // start tensors of a different shape anew instead of failing
};

namespace huggingface {

/// Returns whether the family has models of this task: "bert" has no causal language model.
[[nodiscard]] bool has_task(const std::string& model_type, Task task);
[[nodiscard]] std::vector<std::string> model_types();

/// Returns the model with undefined weights. Throws ConfigError for a family or task that Levin does not have, and with
/// all problems of a config's values.
[[nodiscard]] std::shared_ptr<PretrainedModel> make_model(PretrainedConfig config, Task task);
/// Sets every dropout probability that the family's config has.
void set_dropout(PretrainedConfig& config, double dropout);

[[nodiscard]] std::shared_ptr<PretrainedModel> model_from_config(PretrainedConfig config, Task task);
/// Makes a folder's model with `config` instead of the folder's own.
[[nodiscard]] std::shared_ptr<PretrainedModel> model_from_files(const std::string& folder, PretrainedConfig config,
                                                                Task task, bool ignore_mismatched_sizes);
[[nodiscard]] std::shared_ptr<PretrainedModel> model_from_pretrained(const std::string& folder, Task task,
                                                                     const FromPretrainedOptions& options);

}  // namespace huggingface

/// The functions that make models for one task, as transformers' AutoModelFor… classes do; the aliases below name the
/// tasks.
template <huggingface::Task task>
struct AutoModelFor {
  /// Returns the model of a folder with config.json and safetensors, whole or in shards; in float32 and eval mode, as
  /// transformers returns it. Prints a warning with the parameters that the files lack, which are newly initialized,
  /// and the tensors that the model lacks. Throws ConfigError for a config that Levin cannot compute, naming all keys;
  /// CheckpointError for files that do not fit.
  [[nodiscard]] static std::shared_ptr<PretrainedModel> from_pretrained(const std::string& folder,
                                                                        const FromPretrainedOptions& options = {}) {
    return huggingface::model_from_pretrained(folder, task, options);
  }
  /// Returns a model with new weights, drawn as transformers draws them. Throws ConfigError as from_pretrained does.
  [[nodiscard]] static std::shared_ptr<PretrainedModel> from_config(const PretrainedConfig& config) {
    return huggingface::model_from_config(config, task);
  }
};

using AutoModel = AutoModelFor<huggingface::Task::base>;
using AutoModelForSequenceClassification = AutoModelFor<huggingface::Task::sequence_classification>;
using AutoModelForTokenClassification = AutoModelFor<huggingface::Task::token_classification>;
using AutoModelForMaskedLM = AutoModelFor<huggingface::Task::masked_lm>;
using AutoModelForCausalLM = AutoModelFor<huggingface::Task::causal_lm>;
using AutoModelForImageClassification = AutoModelFor<huggingface::Task::image_classification>;

}  // namespace levin
