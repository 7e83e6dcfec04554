#include "levin/cli/commands/result_file.h"

#include <nlohmann/json.hpp>

#include "levin/cli/runs/metrics_reader.h"
#include "levin/cli/sweep/trial_result.h"
#include "levin/core/error.h"
#include "levin/core/files.h"
#include "levin/core/variables.h"
#include "levin/trainer/measured_metrics.h"
#include "levin/trainer/plan/stop_after.h"

namespace levin {

namespace {

using nlohmann::json;

// A run that was complete when it was started again has logged nothing in this process: its file has all values.
void add_metrics(Trainer& trainer, json& result) {
  Metrics metrics = trainer.callback_metrics();
  MetricsReader reader(trainer.log_dir());
  try {
    reader.update();
  } catch (const Error&) {
    // the fit was successful all the same: its last values are those of its end
  }
  result["measured_at"] = json::object();  // in training batches done
  for (const auto& [name, value] : metrics) {
    if (const auto batches = measured_at(trainer, name)) result["measured_at"][name] = *batches;
  }
  for (const auto& [name, series] : reader.series()) {
    if (!series.values.empty()) metrics.emplace(name, series.values.back());
  }
  result["metrics"] = metrics;
}

void add_checkpoints(Trainer& trainer, bool stopped, json& result) {
  result["checkpoints"] = json::object();
  result["best"] = json::array();
  for (const auto& callback : trainer.callbacks()) {
    if (!callback->is_checkpoint()) continue;
    for (const char* which : {"best", "last", "interrupted"}) {
      const std::string path = callback->checkpoint_path(trainer, which);
      if (path.empty() || (which == std::string("interrupted") && !stopped)) continue;
      const SavedPosition saved = position_of_checkpoint(path);
      if (saved.step >= 0) result["checkpoints"][path] = {{"step", saved.step}, {"batches", saved.batches}};
    }
    const BestCheckpoint best = callback->best_checkpoint();
    if (best.monitor.empty() || !best.score) continue;
    result["best"].push_back(
        {{"monitor", best.monitor}, {"mode", best.mode}, {"value", *best.score}, {"checkpoint", best.path}});
  }
}

}  // namespace

void write_result_file(Trainer& trainer, bool stopped) {
  const auto path = process_variables()("LEVIN_RESULT_FILE");
  if (!path || !trainer.is_global_zero()) return;
  const bool paused =
      stopped && stop_after(process_variables()).is_reached(trainer.current_epoch(), trainer.global_step());
  json result;
  result["status"] = paused ? "paused" : stopped ? "interrupted" : "success";
  add_metrics(trainer, result);
  add_checkpoints(trainer, stopped, result);
  write_output(*path, result.dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace levin
