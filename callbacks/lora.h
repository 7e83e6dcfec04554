// Trains low-rank updates of layers instead of their weights, and writes them in PEFT's layout (docs/lora.md):
//
//   .callbacks = {levin::LoRA({.target_modules = {"query", "value"}, .r = 16, .lora_alpha = 32, .save_to = "adapter"})}
//
// The module is adapted in every entry point before a checkpoint is loaded, so that a resumed run, a test and a
// prediction from a checkpoint find the adapters in it. configure_optimizers gets the module with all else frozen;
// optimizers keep state for what has gradients.
#pragma once

#include "levin/adapters/saved_lora.h"
#include "levin/trainer/callback.h"

namespace levin {

/// A callback that adapts the module to LoRA (Hu et al. 2021, https://arxiv.org/abs/2106.09685). Hooks run on every
/// rank; rank 0 writes the adapter.
class LoRA final : public Callback {
 public:
  using Options = LoRAOptions;
  explicit LoRA(LoRAOptions options);

  /// Throws what apply_lora throws, and ConfigError for quantize with a strategy that shards weights.
  void adapt_model(Trainer& trainer, LightningModule& module) override;

  /// These hooks throw Error after the first batch of a stage if no adapter was used.
  void on_train_batch_end(Trainer&, LightningModule& module, const at::Tensor& loss, const Batch&, int64_t) override;
  void on_validation_batch_end(Trainer&, LightningModule& module, const Batch&, int64_t, int64_t) override;
  void on_test_batch_end(Trainer&, LightningModule& module, const Batch&, int64_t, int64_t) override;
  void on_predict_batch_end(Trainer&, LightningModule& module, const at::Tensor&, const Batch&, int64_t,
                            int64_t) override;

  /// Writes save_to with the weights that save_weights names, and prints which they are: on rank 0, with the values of
  /// all ranks; the last ones after an averaging callback are the average. Nothing in a fast_dev_run.
  void on_fit_end(Trainer& trainer, LightningModule& module) override;

  /// Returns no weights, but the adapters' scaling, which a weights-only checkpoint needs in addition to its weights.
  [[nodiscard]] State weights_to_save(const LightningModule& module) const override;

  /// Returns the scaling that a resumed run must repeat.
  [[nodiscard]] State state_dict() const override;
  /// Throws CheckpointError if the checkpoint's run scaled its adapters differently.
  void load_state_dict(const State& saved) override;
  [[nodiscard]] std::string state_key() const override { return "LoRA"; }

 private:
  void check_used(LightningModule& module);

  LoRAOptions options_;
  LoRAScalings scalings_ = 0.0;  // of the adapted module
  bool checked_ = false;         // since the module was adapted
};

}  // namespace levin
