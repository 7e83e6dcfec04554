#include "levin/trainer/plan/end_reason.h"

#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/trainer.h"

namespace levin {

std::string end_reason(const Trainer& trainer) {
  const RunPlan& plan = trainer.plan();
  if (!trainer.stop_reason().empty()) return trainer.stop_reason();
  if (trainer.global_step() >= plan.max_steps) return "max_steps (" + std::to_string(plan.max_steps) + ") is reached";
  if (trainer.current_epoch() >= plan.max_epochs) {
    return "max_epochs (" + std::to_string(plan.max_epochs) + ") is reached";
  }
  return "there are no batches";
}

}  // namespace levin
