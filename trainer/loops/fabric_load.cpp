// What FabricRun::load does before it changes anything: it checks the checkpoint, and drops what earlier steps have
// left.
#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/trainer/lightning_optimizer.h"
#include "levin/trainer/loops/fabric_run.h"
#include "levin/trainer/state/checkpoint.h"
#include "levin/trainer/state/missing_state.h"
#include "levin/trainer/state/model_match.h"
#include "levin/trainer/state/training_options.h"
#include "levin/trainer/step/step_engine.h"

namespace levin {

// What the file lacks cannot be restored, and a callback has no function that sets it back to its start.
void FabricRun::check_callbacks(const Run& run, const State& checkpoint, const std::string& path) {
  if (!run.has_trained) return;
  for (const auto& callback : run.entry.callbacks) {
    const std::string key = callback->state_key();
    if (callback->state_dict().empty() || !checkpoint.part("callbacks." + key).empty()) continue;
    throw CheckpointError(path + ": it holds no state of the callback " + key +
                          ", which has one since the steps of this run. Load the checkpoint before the first step of "
                          "another Fabric.");
  }
}

void FabricRun::check_checkpoint(Run& run, const State& checkpoint, const std::string& path) const {
  const State own = checkpoint.part("fabric");
  if (own.empty()) {
    throw CheckpointError(path +
                          ": it was not saved by Fabric.save, so its weights have other names. Load them into "
                          "the module before setup.");
  }
  check_is_whole(checkpoint, path);
  naming_checkpoint(path, [&] { check_sources(sources_, own); });
  check_callbacks(run, checkpoint, path);
  const State weights = weights_as_saved(checkpoint);
  (void)check_weights(*modules_, weights, checkpoint, path);
  if (!changed_rows(weights).empty()) return check_resizable(run);  // the optimizers' states get the sizes too
  naming_checkpoint(path, [&] { check_optimization(run, checkpoint, path); });
}

void FabricRun::forget_steps(Run& run) {
  StepEngine& engine = *run.fit.engine;
  end_engine(run);
  (void)engine.take_rollback();
  engine.drop_window();
  run.fit.epoch = Epoch();
  for (LightningOptimizer& optimizer : run.fit.optimizers()) optimizer.zero_grad();
  for (const at::Tensor& parameter : modules_->parameters()) parameter.mutable_grad().reset();
  is_unreduced_ = false;
  forward_syncs_.reset();
}

}  // namespace levin
