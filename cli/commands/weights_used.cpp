#include "levin/cli/commands/weights_used.h"

#include <algorithm>
#include <filesystem>

#include "levin/cli/commands/report.h"
#include "levin/core/process/console.h"
#include "levin/trainer/checkpoint_callback.h"
#include "levin/trainer/state/checkpoint_search.h"
#include "levin/trainer/trainer.h"

namespace levin {

std::string checkpoint_to_use(const RunConfig& config, const TrainerOptions& options) {
  if (config.ckpt_path || config.weights) return config.ckpt_path.value_or("");
  const bool monitors = std::any_of(options.callbacks.begin(), options.callbacks.end(), [](const auto& callback) {
    const ConfigNode* monitor = callback.spec().init_args.find("monitor");
    return callback.spec().short_name() == "ModelCheckpoint" && monitor != nullptr && !monitor->text.empty();
  });
  return monitors ? kBestIfAny : "";
}

void report_weights(const std::string& command, const Trainer& trainer, const RunConfig& config) {
  const std::string& path = trainer.ckpt_path();
  if (path.empty() && !config.weights) return warn_of_initial_weights(command, config);
  std::string best;
  for (const Checkpoint* callback : checkpoint_callbacks(trainer.callbacks())) {
    const BestCheckpoint found = callback->best_checkpoint();
    const bool is_this = std::filesystem::path(found.path).filename() == std::filesystem::path(path).filename();
    if (found.score && !found.monitor.empty() && is_this) {
      best = " (the best by " + found.monitor + ", " + number_text(*found.score) + ")";
    }
  }
  Console::instance().print("weights:     " + (path.empty() ? config.weights->path : path + best));
}

}  // namespace levin
