// Finds weights that a step uses and the module has not registered: a layer that is a member but was never given to
// register_module, next to layers that were. Backward computes its gradients, and nothing trains or saves it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <string>
#include <vector>

#include "levin/data/batch.h"

namespace levin {

struct Run;

/// The leaves of a batch's losses that are not among the module's parameters. Only tensors that outlive the batch are
/// reported: inputs that a step makes, as for a gradient penalty, are gone by then.
class UnregisteredLeaves {
 public:
  /// Adds the leaves that backward of `loss` would reach.
  void add(const Run& run, const at::Tensor& loss);
  /// Once the graph is gone: logs a warning that names what is left. `batch`: its own tensors are inputs.
  void report(const Run& run, const Batch& batch) const;

 private:
  struct Leaf {
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor;
    std::string used_by;  // the operator that reads it
  };
  std::vector<Leaf> leaves_;
};

/// Before a backward pass: notes its leaves, in the first batch of a fit that has a loss.
void note_leaves(Run& run, const at::Tensor& loss);
/// After that batch: reports them, once.
void report_leaves(Run& run, const Batch& batch);

}  // namespace levin
