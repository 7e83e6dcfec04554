// LEVIN_STOP_AFTER=epoch=3 or step=100: a fit stops there with a checkpoint, as for a file called stop, and continues
// later with bitwise identical results. It is an environment variable instead of an option so that max_epochs, and with
// it every schedule, does not change: "levin sweep" pauses trials with it.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>

#include "levin/core/options/error.h"
#include "levin/core/process/this_process.h"

namespace levin {

inline constexpr const char* kStopAfter = "LEVIN_STOP_AFTER";

/// The limits at which a fit stops.
struct StopAfter {
  std::optional<int64_t> epochs = std::nullopt;  // completed ones
  std::optional<int64_t> steps = std::nullopt;

  [[nodiscard]] bool is_reached(int64_t completed_epochs, int64_t global_step) const {
    return (epochs && completed_epochs >= *epochs) || (steps && global_step >= *steps);
  }
};

/// Returns the limits that the variable sets. Throws ConfigError if its value is not of this form.
inline StopAfter stop_after(const Variables& variables) {
  const auto text = variables(kStopAfter);
  if (!text) return {};
  const size_t equals = text->find('=');
  const std::string what = text->substr(0, equals);
  int64_t number = 0;
  if (equals != std::string::npos && (what == "epoch" || what == "step")) {
    const auto* end = text->data() + text->size();
    const auto [at, code] = std::from_chars(text->data() + equals + 1, end, number);
    if (code != std::errc() || at != end) number = 0;
  }
  if (number < 1) {
    throw ConfigError(std::string(kStopAfter) + ": expected epoch=N or step=N with N >= 1, got \"" + cut_text(*text) +
                      "\". Set it to one of them, or unset it.");
  }
  return what == "epoch" ? StopAfter{.epochs = number} : StopAfter{.steps = number};
}

}  // namespace levin
