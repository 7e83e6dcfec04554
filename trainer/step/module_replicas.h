// Replicas of the run's module, one on each slot: strategies dp and dp_balanced. Internal.
#pragma once

#include <c10/util/Exception.h>

#include <memory>
#include <vector>

#include "levin/data/batch_text.h"
#include "levin/strategies/device/parallel_apply.h"
#include "levin/strategies/device/replicas.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/run/run.h"

namespace levin {

// Note [How a replica of a LightningModule is made]
// By the module's own clone(), if it has one; else, if it was made by name (a run file), from the same class and
// options once more. Either way setup() and configure_model() are called on it as on the module, and its weights,
// buffers and modes are the module's before every step: only non-tensor members set by the constructor and these two
// functions are its own.
class ModuleReplicas {
 public:
  /// Throws ConfigError with instructions for clone() if the class cannot be copied, and for manual optimization.
  ModuleReplicas(Run& run, const std::vector<DeviceSlot>& slots);

  enum class Result { loss, outputs };
  using Step = std::function<at::Tensor(LightningModule&, const Batch&)>;

  /// `step` on each replica's share of `batch`. The result is the mean of the losses on the first slot, or the outputs
  /// concatenated. Logged values are logged once, for the whole batch.
  at::Tensor run_step(Run& run, const Batch& batch, Result result, const Step& step);

  /// The replicas except the first, which is the module itself.
  [[nodiscard]] const std::vector<std::shared_ptr<LightningModule>>& copies() const { return copies_; }

 private:
  [[nodiscard]] std::shared_ptr<LightningModule> copy_of(Run& run, const DeviceSlot& slot) const;

  std::vector<std::shared_ptr<LightningModule>> copies_;
  std::shared_ptr<ParallelApply> parallel_;
  std::shared_ptr<Replicas> replicas_;
};

/// Creates the strategy's replicas. Called after the module is on its device and all its layers exist.
void make_replicas(Run& run);

/// One step of the run's module on a batch, by replicas where there are some. LibTorch's errors, which do not say where
/// in the module they come from, get the batch's shapes.
template <class Step>
at::Tensor run_step(Run& run, const Batch& batch, ModuleReplicas::Result result, const Step& step) {
  try {
    if (!run.entry.replicas) return step(*run.entry.module, batch);
    return run.entry.replicas->run_step(run, batch, result, step);
  } catch (const c10::OutOfMemoryError&) {  // its report says what holds the memory
    throw;
  } catch (c10::Error& error) {
    error.add_context("the batch: " + batch_text(batch));
    throw;
  }
}

}  // namespace levin
