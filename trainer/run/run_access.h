// Access to the internals behind the public classes: the only friend of Trainer.
#pragma once

#include <memory>

#include "levin/trainer/lightning_module.h"
#include "levin/trainer/run/kept_config.h"
#include "levin/trainer/trainer.h"

namespace levin {

/// The access of the trainer's files to these internals.
class RunAccess {
 public:
  /// Makes the trainer of a Fabric. Throws as Trainer's constructor does.
  [[nodiscard]] static std::unique_ptr<Trainer> make_guest(TrainerOptions options);
  [[nodiscard]] static Run& of(const Trainer& trainer) { return *trainer.run_; }
  /// Attaches `module` to the trainer instead of the module of its last entry point.
  static void attach(LightningModule& module, Trainer& trainer);
  /// Detaches `module`, which is then attached to the trainer that ran it before, if that still exists.
  static void detach(LightningModule& module, Trainer& trainer);
  /// Sets the configuration of the trainer's runs: it is written to config.yaml in the run's folder, compared with the
  /// file of the run that a fit with auto_resume continues, and compared between ranks at the start of every entry
  /// point.
  static void keep_config(Trainer& trainer, KeptConfig config);
};

}  // namespace levin
