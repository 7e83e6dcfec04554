// The single values of a LightningCLI file: which say nothing here, and which have another form.
#pragma once

#include <optional>
#include <string>

#include "levin/core/config_node.h"

namespace levin {

/// Whether an option that Levin does not have asks for what Levin does anyway: null, or Lightning's own default.
[[nodiscard]] bool asks_for_nothing(const std::string& option, const ConfigNode& value);

/// "${…}" stands somewhere in it: OmegaConf's, which Levin does not expand.
[[nodiscard]] bool has_interpolation(const ConfigNode& value);

/// A span of time as Python writes it ("1 day, 2:30:00", "0:30:00", {hours: 2, minutes: 30}) as DD:HH:MM:SS; nothing if
/// it has none of these forms.
[[nodiscard]] std::optional<ConfigNode> from_timedelta(const ConfigNode& value);

}  // namespace levin
