// Creates the objects of a run from its run file.
#pragma once

#include <memory>
#include <string>

#include "levin/cli/config/run_config.h"
#include "levin/data/data_module.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/trainer.h"

namespace levin {

/// The objects of a run.
struct RunParts {
  std::shared_ptr<LightningModule> model;
  std::shared_ptr<DataModule> data;  // null: the model's own loaders
};

/// Creates model and data of a resolved configuration, after seeding all generators if configured. The run file's
/// optimizer and scheduler replace the model's.
[[nodiscard]] RunParts make_parts(const RunConfig& config);

/// Trains the model on the data, or on its own loaders.
void fit(Trainer& trainer, const RunParts& parts, const std::string& ckpt_path = "");

}  // namespace levin
