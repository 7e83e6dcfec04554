// An entry point of the Trainer from setup to teardown: what fit and the evaluations have in common, and what they run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "levin/trainer/loops/plan_recomputation.h"
#include "levin/trainer/run/run.h"
#include "levin/trainer/trainer.h"

namespace levin {

/// A data module of loaders that were passed to an entry point.
class LoaderData final : public DataModule {
 public:
  /// Throws ConfigError for several training loaders.
  LoaderData(Loaders train, Loaders eval);
  std::shared_ptr<Loader> train_dataloader() override { return train_.empty() ? nullptr : train_[0]; }
  Loaders val_dataloader() override { return eval_; }
  Loaders test_dataloader() override { return eval_; }
  Loaders predict_dataloader() override { return eval_; }

 private:
  Loaders train_;
  Loaders eval_;
};

/// Implements Trainer::fit. `data`: null for the module's own loaders.
void run_fit(Run& run, LightningModule& module, DataModule* data, const std::string& ckpt_path);

/// Implements Trainer::validate, test and predict. Returns the metrics of each loader. `predictions`: receives the
/// predictions; null: they are dropped.
std::vector<Metrics> evaluate(Run& run, LightningModule& module, DataModule* data, Stage stage,
                              const std::string& ckpt_path, Predictions* predictions = nullptr);

/// Runs fit up to its first training batch, and measures its module instead of training it: what "levin plan memory"
/// shows. Returns nothing if there is no batch. `replicas`: measures the share of the batch that one of this many
/// replicas computes. Throws what fit throws before its first batch, and ConfigError for steps that cannot be measured
/// (measure_chain).
[[nodiscard]] std::optional<MeasuredFit> measure_fit(Trainer& trainer, LightningModule& module, DataModule* data,
                                                     int64_t replicas = 1);
[[nodiscard]] std::optional<MeasuredFit> measure_fit(Trainer& trainer, LightningModule& module, Loaders train,
                                                     int64_t replicas = 1);

}  // namespace levin
