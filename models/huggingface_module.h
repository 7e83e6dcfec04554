// What HuggingFaceClassifier and HuggingFaceLM share: a model of a Hugging Face folder, AdamW with a warmup, frozen
// parameters, and the folder that is written at the end of fit.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/adapters/lora.h"
#include "levin/core/byte_size.h"
#include "levin/core/which_checkpoint.h"
#include "levin/models/huggingface/auto_model.h"
#include "levin/trainer/lightning_module.h"

namespace levin {

/// The options that both have; their meanings are in each one's fields().
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
  WhichCheckpoint save_weights = WhichCheckpoint::best;
};

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

  /// Writes the model as it is now, on rank 0: save_pretrained's folder, with LoRA's adapters merged into the weights.
  /// During a run every rank calls it.
  void save_pretrained(const std::string& folder) const;

  /// Null before configure_model if the number of labels is the data's.
  [[nodiscard]] const std::shared_ptr<PretrainedModel>& model() const { return model_; }

 protected:
  explicit HuggingFaceModule(HuggingFaceSettings settings) : settings_(std::move(settings)) {}

  /// The folder's config.json with the settings in it.
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
