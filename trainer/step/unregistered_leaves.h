// Finds weights that a step uses and the module has not registered: a layer that is a member but was never given to
// register_module, next to layers that were. Backward computes its gradients, and nothing trains or saves it.
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <ATen/record_function.h>
#include <c10/util/intrusive_ptr.h>

#include <optional>
#include <string>
#include <vector>

#include "levin/data/batch.h"

namespace levin {

struct StepCore;

/// The leaves of a batch's losses that are not among the module's parameters. Only tensors that outlive the batch are
/// reported: inputs that a step makes, as for a gradient penalty, are gone by then.
class UnregisteredLeaves {
 public:
  /// Adds the leaves that backward of `loss` would reach.
  void add(const StepCore& core, const at::Tensor& loss);
  /// Adds a leaf that an operator has read, in case a backward pass that the trainer does not run computes its
  /// gradient.
  void add_read(const at::Tensor& leaf, const std::string& used_by);
  /// Logs a warning that names the leaves that still exist, and returns whether there are any. Called once the graph is
  /// gone. `batch`: its own tensors are inputs.
  bool report(const StepCore& core, const Batch& batch) const;

 private:
  struct Leaf {
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor;
    std::string used_by;  // the operator that reads it
  };
  std::vector<Leaf> leaves_;
  std::vector<Leaf> read_;  // reported if they have a gradient
};

// These batches are checked: the first of a fit that has a loss, and, for layers that are used later, the batches with
// the numbers 1, 2, 4, 8, … and the first batches of the epochs 1, 2, 4, 8, …, until a warning is logged.

/// Records the leaves of a backward pass before it runs, if the batch is checked.
void note_leaves(StepCore& core, const at::Tensor& loss);

/// A scope around a training step with manual optimization, which may call backward of a loss itself. Records the
/// leaves that operators of this thread read, if the batch is checked.
class ReadLeavesScope {
 public:
  explicit ReadLeavesScope(StepCore& core);
  ~ReadLeavesScope();
  ReadLeavesScope(const ReadLeavesScope&) = delete;
  ReadLeavesScope& operator=(const ReadLeavesScope&) = delete;

 private:
  std::optional<at::CallbackHandle> handle_ = std::nullopt;
};

/// Reports the recorded leaves after the batch.
void report_leaves(StepCore& core, const Batch& batch);

}  // namespace levin
