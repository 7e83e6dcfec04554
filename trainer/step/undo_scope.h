// Undoes training passes whose results are not used: a batch that is tried again in smaller parts, steps that only
// measure, trial runs. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "levin/core/state.h"
#include "levin/metrics/update_undo.h"

namespace torch::nn {
class Module;
}

namespace levin {

class LightningModule;

/// Saves what a step changes in a module: gradients, buffers (the statistics of BatchNorm), random number generators,
/// the modes of submodules, and what metric objects have accumulated, wherever they are; if asked to, the weights too.
class UndoScope {
 public:
  struct Options {
    bool saves_weights = false;         // an update will change them
    bool sets_gradients_aside = false;  // there are none until end(); otherwise their values are copied
    bool copies_to_host = false;        // a device's memory is left to the steps
  };
  /// `module` outlives it.
  UndoScope(LightningModule& module, Options options);
  /// Returns to the state in which the scope began. May be called several times.
  void restore();
  /// restore(), and gradients that were set aside are back.
  void end();

 private:
  struct Gradient {
    at::Tensor parameter;
    at::Tensor gradient;  // the same tensor as before; undefined: there was none
    at::Tensor copy;      // undefined: it was set aside
  };

  Options options_;
  std::vector<Gradient> gradients_ = {};
  std::vector<std::pair<at::Tensor, at::Tensor>> tensors_ = {};  // and its copy
  std::vector<std::pair<torch::nn::Module*, bool>> modes_ = {};  // parents before children
  State random_;
  metrics::UpdateUndo metrics_ = {};
};

}  // namespace levin
