// The names of the counters that stand next to the metrics in every logger's rows.
#pragma once

#include <string_view>

namespace levin {

/// Whether no metric may have the name: loggers, file names of checkpoints and monitors would show the counter instead.
[[nodiscard]] inline bool is_counter_name(std::string_view name) {
  return name == "epoch" || name == "step";
}

}  // namespace levin
