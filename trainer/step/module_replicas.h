// Replicas of the run's module, one on each slot: strategies dp and dp_balanced. Internal.
#pragma once

#include <c10/util/Exception.h>

#include <memory>
#include <vector>

#include "levin/data/batch_text.h"
#include "levin/strategies/device/parallel_apply.h"
#include "levin/strategies/device/replicas.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/step/step_core.h"

namespace levin {

class ModuleReplicas {
 public:
  /// `copies`: a replica for each slot but the first (run/make_replicas.h).
  ModuleReplicas(LightningModule& module, std::vector<std::shared_ptr<LightningModule>> copies,
                 const std::vector<DeviceSlot>& slots);

  enum class Result { loss, outputs };
  using Step = std::function<at::Tensor(LightningModule&, const Batch&)>;

  /// `step` on each replica's share of `batch`. The result is the mean of the losses on the first slot, or the outputs
  /// concatenated. Logged values are logged once, for the whole batch.
  at::Tensor run_step(StepCore& core, const Batch& batch, Result result, const Step& step);

  /// The replicas except the first, which is the module itself.
  [[nodiscard]] const std::vector<std::shared_ptr<LightningModule>>& copies() const { return copies_; }

 private:
  std::vector<std::shared_ptr<LightningModule>> copies_;
  std::shared_ptr<ParallelApply> parallel_;
  std::shared_ptr<Replicas> replicas_;
};

/// One step of the run's module on a batch, by replicas where there are some. LibTorch's errors, which do not say where
/// in the module they come from, get the batch's shapes.
template <class Step>
at::Tensor run_step(StepCore& core, const Batch& batch, ModuleReplicas::Result result, const Step& step) {
  try {
    if (!core.replicas) return step(core.module, batch);
    return core.replicas->run_step(core, batch, result, step);
  } catch (const c10::OutOfMemoryError&) {  // its report lists what holds the memory
    throw;
  } catch (c10::Error& error) {
    error.add_context("the batch: " + batch_text(batch));
    throw;
  }
}

}  // namespace levin
