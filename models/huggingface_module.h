// What HuggingFaceClassifier and HuggingFaceLM share: a model of a Hugging Face folder, AdamW with a warmup, frozen
// parameters, and the folder that is written at the end of fit.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/adapters/lora.h"
#include "levin/core/options/units.h"
#include "levin/core/options/which_checkpoint.h"
#include "levin/models/huggingface/auto_model.h"
#include "levin/trainer/lightning_module.h"

namespace levin {

/// The options that HuggingFaceClassifier and HuggingFaceLM share; settings_fields() explains them.
struct HuggingFaceSettings {
  std::string path = "";
  bool from_scratch = false;
  std::optional<double> dropout = std::nullopt;
  bool ignore_mismatched_sizes = false;
  double lr = 2e-5;
  int64_t warmup_steps = 0;
  double weight_decay = 0.01;
  std::vector<std::string> freeze = {};
  std::string save_to = "";
  ByteSize max_shard_size = {50'000'000'000};
  EnumOption<WhichCheckpoint> save_weights = WhichCheckpoint::best;
};

/// The settings among the options of HuggingFaceClassifier or HuggingFaceLM.
template <class Options>
HuggingFaceSettings settings_of(const Options& o) {
  return {o.path,         o.from_scratch, o.dropout, o.ignore_mismatched_sizes, o.lr,          o.warmup_steps,
          o.weight_decay, o.freeze,       o.save_to, o.max_shard_size,          o.save_weights};
}

/// The fields of the settings, with `own`, the fields that only `Options` has, after from_scratch.
template <class Options>
FieldList settings_fields(const FieldList& own, const char* mismatched_doc, const char* freeze_doc) {
  using O = Options;
  return levin::fields(
      field("path", &O::path, "a folder with config.json and, unless from_scratch, safetensors")
          .not_empty()
          .ranks_may_differ(),
      field("from_scratch", &O::from_scratch, "new weights for the folder's config.json instead of its own"), own,
      field("dropout", &O::dropout, "all dropout probabilities in training; null: config.json's")
          .check([](const auto& share) { return !share || (*share >= 0 && *share < 1); }, ">= 0 and < 1"),
      field("ignore_mismatched_sizes", &O::ignore_mismatched_sizes, mismatched_doc),
      field("lr", &O::lr, "AdamW's step size after the warmup").above(0.0),
      field("warmup_steps", &O::warmup_steps, "optimizer steps of linear warmup; then lr falls linearly to 0").min(0),
      field("weight_decay", &O::weight_decay, "of all but biases and norms").min(0.0),
      field("freeze", &O::freeze, freeze_doc),
      field("save_to", &O::save_to, "a folder for save_pretrained at the end of fit; \"\": none").ranks_may_differ(),
      field("max_shard_size", &O::max_shard_size, "of the files in save_to"),
      field("save_weights", &O::save_weights,
            "what save_to holds: best, the weights of the best checkpoint by its callback's monitor (the last ones "
            "without a monitor), or last"));
}

/// The base of HuggingFaceClassifier and HuggingFaceLM.
class HuggingFaceModule : public LightningModule {
 public:
  /// AdamW in two groups, weight decay for all but biases and norms, with a linear warmup and a linear way to 0 at the
  /// run's end.
  OptimizerConfig configure_optimizers() override;
  /// Writes `save_to` with the weights that `save_weights` names, and prints which they are: on rank 0, with the
  /// weights of all ranks; the last ones after an averaging callback are the average. Nothing in a fast_dev_run.
  void on_fit_end() override;
  /// Throws what check_merge throws, if save_to is set.
  void on_fit_start() override;

  /// Writes the model's current weights on rank 0 as save_pretrained does, with LoRA's adapters merged into the
  /// weights. During a run every rank calls it.
  void save_pretrained(const std::string& folder) const;

  /// Returns the model; null before configure_model if the number of labels is the data's.
  [[nodiscard]] const std::shared_ptr<PretrainedModel>& model() const { return model_; }

 protected:
  explicit HuggingFaceModule(HuggingFaceSettings settings) : settings_(std::move(settings)) {}

  /// Returns the folder's config.json with the settings in it.
  [[nodiscard]] PretrainedConfig read_config() const;
  /// Makes the model, with the folder's weights unless from_scratch, and freezes what the settings name. Throws as
  /// AutoModel does, and ConfigError for a pattern that matches no parameter.
  void make_model(const PretrainedConfig& config, huggingface::Task task);
  [[nodiscard]] const HuggingFaceSettings& settings() const { return settings_; }

 private:
  void freeze_parameters();
  void write(const std::string& folder, const WholeTensor& whole) const;

  HuggingFaceSettings settings_;
  std::shared_ptr<PretrainedModel> model_ = nullptr;  // registered as "model"
};

}  // namespace levin
