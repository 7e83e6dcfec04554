#include "levin/cli/commands/result_file.h"

#include <nlohmann/json.hpp>

#include "levin/core/files.h"
#include "levin/core/variables.h"
#include "levin/trainer/plan/stop_after.h"

namespace levin {

namespace {

std::string checkpoint_to_name(Trainer& trainer, bool stopped) {
  for (const auto& callback : trainer.callbacks()) {
    if (!callback->is_checkpoint()) continue;
    for (const char* which : {"best", "last"}) {
      if (const std::string path = callback->checkpoint_path(trainer, which); !path.empty()) return path;
    }
    if (stopped) return callback->checkpoint_path(trainer, "interrupted");
  }
  return "";
}

}  // namespace

void write_result_file(Trainer& trainer, bool stopped) {
  const auto path = process_variables()("LEVIN_RESULT_FILE");
  if (!path || !trainer.is_global_zero()) return;
  const bool paused =
      stopped && stop_after(process_variables()).is_reached(trainer.current_epoch(), trainer.global_step());
  nlohmann::json result;
  result["status"] = paused ? "paused" : stopped ? "interrupted" : "success";
  result["epoch"] = trainer.current_epoch();
  result["step"] = trainer.global_step();
  result["metrics"] = trainer.callback_metrics();
  result["checkpoint"] = checkpoint_to_name(trainer, stopped);
  write_file_durably(*path, result.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace levin
