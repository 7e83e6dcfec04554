// Replicas of the run's module, each on a slot of its own: strategies dp and dp_balanced. Internal.
#pragma once

#include <memory>
#include <vector>

#include "levin/strategies/device/parallel_apply.h"
#include "levin/strategies/device/replicas.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/run/run.h"

namespace levin {

// Note [How a replica of a LightningModule is made]
// By the module's own clone(), if it has one; else, if it was made by name (a run file), from the same class and
// options once more. Either way setup() and configure_model() are called on it as on the module, and its weights,
// buffers and modes are the module's before every step: only what the constructor and these two set besides tensors is
// its own.
class ModuleReplicas {
 public:
  /// Throws ConfigError saying how to give the class a clone() where there is no way to copy it, and for manual
  /// optimization.
  ModuleReplicas(Run& run, const std::vector<DeviceSlot>& slots);

  enum class Result { loss, outputs };
  using Step = std::function<at::Tensor(LightningModule&, const Batch&)>;

  /// `step` on each replica's share of `batch`. The result is the mean of the losses on the first slot, or the outputs
  /// one below the other. What was logged is logged once, for the whole batch.
  at::Tensor run_step(Run& run, const Batch& batch, Result result, const Step& step);

  /// The module's replicas but the first, which is the module.
  [[nodiscard]] const std::vector<std::shared_ptr<LightningModule>>& copies() const { return copies_; }

 private:
  [[nodiscard]] std::shared_ptr<LightningModule> copy_of(Run& run, const DeviceSlot& slot) const;

  std::vector<std::shared_ptr<LightningModule>> copies_;
  std::shared_ptr<ParallelApply> parallel_;
  std::shared_ptr<Replicas> replicas_;
};

/// Makes the replicas that the strategy wants. After the module is on its device and all its layers are made.
void make_replicas(Run& run);

/// One step of the run's module on a batch, by replicas where there are some.
template <class Step>
at::Tensor run_step(Run& run, const Batch& batch, ModuleReplicas::Result result, const Step& step) {
  if (!run.entry.replicas) return step(*run.entry.module, batch);
  return run.entry.replicas->run_step(run, batch, result, step);
}

}  // namespace levin
