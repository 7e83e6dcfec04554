// Replicas of the run's module, one on each slot: strategies dp and dp_balanced. Internal.
#pragma once

#include <c10/util/Exception.h>

#include <memory>
#include <vector>

#include "levin/data/batch_text.h"
#include "levin/strategies/device/parallel_apply.h"
#include "levin/strategies/device/replicas.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/step/out_of_memory.h"
#include "levin/trainer/step/step_core.h"

namespace levin {

/// The replicas, and the threads that run a step on them.
class ModuleReplicas {
 public:
  /// `copies`: a replica for each slot but the first (run/make_replicas.h).
  ModuleReplicas(LightningModule& module, std::vector<std::shared_ptr<LightningModule>> copies,
                 const std::vector<DeviceSlot>& slots);

  enum class Result { loss, outputs };
  using Step = std::function<at::Tensor(LightningModule&, const Batch&)>;

  /// Runs `step` on each replica's share of `batch`. Returns the mean of the losses on the first slot, or the
  /// concatenated outputs. Logged values are logged once, for the whole batch.
  at::Tensor run_step(StepCore& core, const Batch& batch, Result result, const Step& step);

  /// Returns the replicas except the first, which is the module itself.
  [[nodiscard]] const std::vector<std::shared_ptr<LightningModule>>& copies() const { return copies_; }

 private:
  std::vector<std::shared_ptr<LightningModule>> copies_;
  std::shared_ptr<ParallelApply> parallel_;
  std::shared_ptr<Replicas> replicas_;
};

/// Runs one step of the module on a batch, on its replicas if there are some. LibTorch's errors do not show where in
/// the module they come from, so they get the batch's shapes.
template <class Step>
at::Tensor run_step(StepCore& core, const Batch& batch, ModuleReplicas::Result result, const Step& step) {
  try {
    if (!core.replicas) return step(core.module, batch);
    return core.replicas->run_step(core, batch, result, step);
  } catch (c10::Error& error) {
    if (is_out_of_memory(error)) throw;  // its report lists what holds the memory
    error.add_context("the batch: " + batch_text(batch));
    throw;
  }
}

}  // namespace levin
