// Trainer options for tests of one callback: nothing else writes or prints, or depends on time.
#pragma once

#include <string>

#include "levin/trainer/checkpoint_callback.h"
#include "levin/trainer/trainer.h"
#include "support/error_text.h"

namespace levin::test {

inline TrainerOptions quiet(int64_t max_epochs, Callbacks callbacks, const std::string& folder = "") {
  TrainerOptions options;
  options.logger = false;
  options.callbacks = std::move(callbacks);
  options.max_epochs = max_epochs;
  options.num_threads = 1;  // auto chooses by the times of steps
  options.enable_progress_bar = false;
  options.enable_model_summary = false;
  options.enable_checkpointing = std::nullopt;
  for (auto& callback : options.callbacks) {
    if (dynamic_cast<Checkpoint*>(callback.object("test").get()) != nullptr) options.enable_checkpointing = true;
  }
  if (!options.enable_checkpointing) options.enable_checkpointing = false;
  options.default_root_dir = folder;
  return options;
}

}  // namespace levin::test
