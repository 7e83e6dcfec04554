#include "levin/trainer/loops/fabric_options.h"

#include <string_view>
#include <utility>
#include <vector>

namespace levin {

namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

}  // namespace

TrainerOptions trainer_options(FabricOptions given) {
  TrainerOptions options;
  options.accelerator = given.accelerator;
  options.strategy = std::move(given.strategy);
  options.devices = std::move(given.devices);
  options.num_nodes = given.num_nodes;
  options.precision = std::move(given.precision);
  options.callbacks = std::move(given.callbacks);
  options.logger = !given.loggers.empty();
  options.logger.loggers = std::move(given.loggers);
  options.accumulate_grad_batches = given.accumulate_grad_batches;
  options.gradient_clip_val = given.gradient_clip_val;
  options.gradient_clip_algorithm = given.gradient_clip_algorithm;
  options.nonfinite_loss = given.nonfinite_loss;
  options.record_steps = std::move(given.record_steps);
  options.deterministic = std::move(given.deterministic);
  if (given.num_threads) options.num_threads = *given.num_threads;
  options.oversubscribe = given.oversubscribe;
  options.default_root_dir = std::move(given.default_root_dir);
  options.max_epochs = -1;
  options.num_sanity_val_steps = 0;
  options.enable_checkpointing = std::nullopt;
  options.enable_progress_bar = options.enable_model_summary = false;
  options.auto_requeue = false;
  return options;
}

std::string text_for_call(const std::string& call, std::string text) {
  for (const std::string_view place : {"training_step: ", "backward: ", "fit: ", "log_now: "}) {
    if (text.starts_with(place)) text.erase(0, place.size());
  }
  replace_all(text, "log_now(", "log(");
  replace_all(text, "levin::FabricModules", "FabricModules");
  replace_all(text, "FabricModules", "the modules that were set up");
  // A plain module has no such functions.
  replace_all(text, "; to train without gradients use set_automatic_optimization(false)", "");
  replace_all(text, ", or let it load what fits (set_strict_loading(false))", "");
  replace_all(text, "TrainerOptions.logger", "FabricOptions.loggers");
  replace_all(text, "TrainerOptions.", "FabricOptions.");
  replace_all(text, "trainer.logger[", "FabricOptions.loggers[");
  replace_all(text, "trainer.callbacks[", "FabricOptions.callbacks[");
  // A note about a checkpoint names the file instead.
  return text.starts_with("Fabric") || text.starts_with("Continuing from ") ? text : call + ": " + text;
}

ConfigError config_error_for_call(const std::string& call, const ConfigError& error) {
  std::vector<std::string> problems = error.problems();
  for (std::string& problem : problems) problem = text_for_call(call, std::move(problem));
  return ConfigError(std::move(problems));
}

}  // namespace levin
