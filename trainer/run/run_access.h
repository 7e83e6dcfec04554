// Access to the internals behind the public classes: the only friend of Trainer and LightningModule.
#pragma once

#include "levin/trainer/lightning_module.h"
#include "levin/trainer/trainer.h"

namespace levin {

class RunAccess {
 public:
  [[nodiscard]] static Run& of(const Trainer& trainer) { return *trainer.run_; }
  /// The trainer that a module is attached to; null: none.
  [[nodiscard]] static Trainer*& trainer_of(LightningModule& module) { return module.trainer_; }
};

}  // namespace levin
