// Access to the internals behind the public classes: the only friend of Trainer and LightningModule.
#pragma once

#include "levin/trainer/lightning_module.h"
#include "levin/trainer/trainer.h"

namespace levin {

class RunAccess {
 public:
  [[nodiscard]] static Run& of(const Trainer& trainer) { return *trainer.run_; }
  /// The trainer that a module is attached to, the last that ran it; null: none. Run::earlier leads to the others.
  [[nodiscard]] static Trainer*& trainer_of(LightningModule& module) { return module.trainer_; }
  /// Makes `module` the trainer's, in place of the module of its last entry point.
  static void attach(LightningModule& module, Trainer& trainer);
  /// Ends that; the module is attached to the trainer before, if that still exists.
  static void detach(LightningModule& module, Trainer& trainer);
};

}  // namespace levin
