// Undoes training passes whose results are not used: a batch that is retried in smaller parts, measurements, trial
// runs. Internal.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <utility>
#include <vector>

#include "levin/core/state.h"
#include "levin/metrics/update_undo.h"

namespace torch::nn {
class Module;
}

namespace levin {

class LightningModule;

/// A copy of what a step changes in a module: gradients, buffers (the statistics of BatchNorm), random number
/// generators, the modes of submodules, the accumulated state of all metric objects, and optionally the weights.
class UndoScope {
 public:
  struct Options {
    bool saves_weights = false;         // an update will change them
    bool sets_gradients_aside = false;  // parameters have none until end(); otherwise their values are copied
    bool copies_to_host = false;        // copies use no memory of the device
  };
  /// Saves the state. `module` outlives the scope.
  UndoScope(LightningModule& module, Options options);
  /// Returns to the state in which the scope began. May be called several times.
  void restore();
  /// Calls restore(), and gives gradients that were set aside back to the parameters.
  void end();

 private:
  struct Gradient {
    at::Tensor parameter;
    at::Tensor gradient;  // the same tensor as before; undefined: there was none
    at::Tensor copy;      // undefined: it was set aside
  };

  Options options_;
  std::vector<Gradient> gradients_ = {};
  std::vector<std::pair<at::Tensor, at::Tensor>> tensors_ = {};  // with copies
  std::vector<std::pair<torch::nn::Module*, bool>> modes_ = {};  // parents before children
  State random_;
  metrics::UpdateUndo metrics_ = {};
};

}  // namespace levin
