// Values in a LightningCLI file: those without meaning here, and those with another form.
#pragma once

#include <optional>
#include <string>

#include "levin/core/config_node.h"

namespace levin {

/// Whether an option that Levin does not have requests what Levin does anyway: null, or Lightning's default.
[[nodiscard]] bool asks_for_nothing(const std::string& option, const ConfigNode& value);

/// Whether it contains "${…}" of OmegaConf, which Levin does not expand.
[[nodiscard]] bool has_interpolation(const ConfigNode& value);

/// A time span as Python prints it ("1 day, 2:30:00", "0:30:00", {hours: 2, minutes: 30}) as DD:HH:MM:SS; unset if it
/// has none of these forms.
[[nodiscard]] std::optional<ConfigNode> from_timedelta(const ConfigNode& value);

}  // namespace levin
