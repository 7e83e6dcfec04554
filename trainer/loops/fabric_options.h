// The options of a Fabric as those of a Trainer, and the Trainer's errors in the words of a Fabric's user.
#pragma once

#include <string>

#include "levin/core/options/error.h"
#include "levin/trainer/fabric.h"
#include "levin/trainer/trainer_options.h"

namespace levin {

/// Returns the options of a run without the Trainer's own loop and output.
[[nodiscard]] TrainerOptions trainer_options(FabricOptions given);

/// Returns a text about a run of the Trainer in the words of a Fabric's user, after the name of the call: "Fabric.step:
/// the loss …".
[[nodiscard]] std::string text_for_call(const std::string& call, std::string text);
/// Same for each problem of `error`.
[[nodiscard]] ConfigError config_error_for_call(const std::string& call, const ConfigError& error);

}  // namespace levin
