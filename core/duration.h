// Spans of time as people write them: "00:12:00:00" (days:hours:minutes:seconds), "90min", "1h30m", "45s".
#pragma once

#include <chrono>
#include <string>

#include "levin/core/value.h"

namespace levin {

/// A span of time; 0 means "none" where an option allows it.
using Seconds = std::chrono::duration<double>;

/// Reads DD:HH:MM:SS, or numbers with units d, h, m, min, s, ms one after another.
/// Throws Error showing the text if it is neither.
[[nodiscard]] Seconds parse_duration(const std::string& text);

/// DD:HH:MM:SS, whole seconds: reads back with parse_duration.
[[nodiscard]] std::string duration_text(Seconds span);

/// Readable, with at most two units: "1 h 02 min", "3 min 07 s", "4.2 s".
[[nodiscard]] std::string readable_duration(Seconds span);

template <>
struct ValueType<Seconds> {
  static std::string name() { return "duration"; }
  static bool read(const ConfigNode& node, Seconds& value, const std::string& path, Problems& problems);
  static ConfigNode write(Seconds value);  // DD:HH:MM:SS, or "1.5s" where that would round
};

}  // namespace levin
