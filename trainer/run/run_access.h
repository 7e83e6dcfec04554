// Access to the internals behind the public classes: the only friend of Trainer and LightningModule.
#pragma once

#include <memory>

#include "levin/trainer/lightning_module.h"
#include "levin/trainer/trainer.h"

namespace levin {

/// The access of the trainer's files to these internals.
class RunAccess {
 public:
  /// Makes the trainer of a Fabric. Throws as Trainer's constructor does.
  [[nodiscard]] static std::unique_ptr<Trainer> make_guest(TrainerOptions options);
  [[nodiscard]] static Run& of(const Trainer& trainer) { return *trainer.run_; }
  /// Returns the trainer that a module is attached to, the last that ran it, or null. Run::earlier leads to earlier
  /// ones.
  [[nodiscard]] static Trainer*& trainer_of(LightningModule& module) { return module.trainer_; }
  /// Attaches `module` to the trainer instead of the module of its last entry point.
  static void attach(LightningModule& module, Trainer& trainer);
  /// Detaches `module`, which is then attached to the trainer that ran it before, if that still exists.
  static void detach(LightningModule& module, Trainer& trainer);
};

}  // namespace levin
