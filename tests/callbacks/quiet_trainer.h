// Trainer options for tests of one callback: nothing else writes or prints.
#pragma once

#include <string>

#include "levin/trainer/trainer.h"

namespace levin::test {

inline TrainerOptions quiet(int64_t max_epochs, Callbacks callbacks, const std::string& folder = "") {
  TrainerOptions options;
  options.logger = false;
  options.callbacks = std::move(callbacks);
  options.max_epochs = max_epochs;
  options.enable_progress_bar = false;
  options.enable_model_summary = false;
  options.enable_checkpointing = std::nullopt;
  for (auto& callback : options.callbacks) {
    if (callback.object("test")->is_checkpoint()) options.enable_checkpointing = true;
  }
  if (!options.enable_checkpointing) options.enable_checkpointing = false;
  options.default_root_dir = folder;
  return options;
}

/// The message of the Error that `action` throws, "" if none.
template <class Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace levin::test
