// Access to the members of a LightningModule that only Levin uses.
#pragma once

#include <functional>
#include <utility>

#include "levin/trainer/lightning_module.h"

namespace levin {

/// The only friend class of LightningModule.
class ModuleAccess {
 public:
  /// Returns the registered class and options that the module was created from; empty if a program created it directly.
  [[nodiscard]] static const ClassSpec& made_from(const LightningModule& module) { return module.made_from_; }

  /// Returns the run file's optimizers, or the result of configure_optimizers.
  [[nodiscard]] static OptimizerConfig wanted_optimizers(LightningModule& module) {
    return module.optimizer_override_ ? module.optimizer_override_(module) : module.configure_optimizers();
  }
  /// Sets what makes the module's optimizers instead of configure_optimizers.
  static void set_optimizer_override(LightningModule& module,
                                     std::function<OptimizerConfig(LightningModule&)> override_with) {
    module.optimizer_override_ = std::move(override_with);
  }

  /// Returns the trainer that the module is attached to, the last that ran it, or null. Run::earlier leads to earlier
  /// ones.
  [[nodiscard]] static Trainer*& trainer_of(LightningModule& module) { return module.trainer_; }
};

}  // namespace levin
