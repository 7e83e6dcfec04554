// The levels of the run's log, for each part of the library: "info", "debug", "data=debug,info".
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace levin::log {

enum class Level : int { trace, debug, info, warn, error, off };

/// "trace", "debug", "info", "warning", "error", "off".
[[nodiscard]] const char* level_name(Level level);

namespace detail {

/// The level of one component, read without a lock wherever a line could be written.
struct Slot {
  const char* name;
  std::atomic<Level> level = Level::info;  // the least that is written
  std::atomic<bool> echoes = false;        // its lines also go to standard error
};

inline constinit Slot trainer_slot{"trainer"};
inline constinit Slot data_slot{"data"};
inline constinit Slot strategy_slot{"strategy"};
inline constinit Slot checkpoint_slot{"checkpoint"};
inline constinit Slot logger_slot{"logger"};
inline constinit Slot launcher_slot{"launcher"};
inline constinit Slot hooks_slot{"hooks"};
inline constinit Slot console_slot{"console"};
inline constinit Slot user_slot{"user"};

/// The slot with this name, made if there is none; it lives as long as the process. Characters that a name may not
/// have (all but letters, digits, _ . -) are replaced by _.
Slot& slot_of(const std::string& name);

}  // namespace detail

/// What a text such as "data=debug,info" says.
struct Levels {
  std::optional<Level> all = std::nullopt;  // of components that are not named
  std::vector<std::pair<std::string, Level>> components = {};
};

/// Throws ConfigError, beginning with `source` ("LEVIN_LOG"), that names an unknown level or component and lists the
/// known ones.
[[nodiscard]] Levels parse_levels(const std::string& text, const std::string& source);

/// The names of all components, sorted.
[[nodiscard]] std::vector<std::string> component_names();

/// Sets the level of every component: info, or what the last of these says about it. A component that is set to debug
/// or trace also writes to standard error.
void apply_levels(const std::vector<Levels>& all);

}  // namespace levin::log
