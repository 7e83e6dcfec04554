#include "levin/cli/config/lightning_values.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "levin/core/duration.h"

namespace levin {

namespace {

// Options that Levin does not have, with Lightning's and PyTorch's defaults as printed.
constexpr std::array kUnset{
    std::pair{"enable_autolog_hparams", "true"},  // Trainer
    std::pair{"foreach", "false"},                // torch.optim
    std::pair{"capturable", "false"},
    std::pair{"differentiable", "false"},
    std::pair{"fused", "false"},
    std::pair{"decoupled_weight_decay", "false"},
    std::pair{"last_epoch", "-1"},  // torch.optim.lr_scheduler
    std::pair{"verbose", "deprecated"},
    std::pair{"verbose", "false"},
    std::pair{"refresh_rate", "1"},  // progress bars
    std::pair{"process_position", "0"},
    std::pair{"leave", "false"},
    std::pair{"prefix", ""},                  // CSVLogger
    std::pair{"checkpoint_path_prefix", ""},  // MLFlowLogger
    std::pair{"synchronous", "false"},
    std::pair{"log_graph", "false"},  // TensorBoardLogger
    std::pair{"max_queue", "10"},
    std::pair{"comment", ""},
    std::pair{"start_method", "popen"},
    std::pair{"log_rank_zero_only", "false"},
};

constexpr std::array kUnits{std::pair{"weeks", 604800.0},   std::pair{"days", 86400.0}, std::pair{"hours", 3600.0},
                            std::pair{"minutes", 60.0},     std::pair{"seconds", 1.0},  std::pair{"milliseconds", 1e-3},
                            std::pair{"microseconds", 1e-6}};

std::optional<double> seconds_of(const ConfigNode& parts) {
  double total = 0;
  for (const auto& entry : parts.entries) {
    const auto* unit =
        std::find_if(kUnits.begin(), kUnits.end(), [&](const auto& known) { return entry.key == known.first; });
    double amount = 0;
    if (unit == kUnits.end() || !detail::parse_double(entry.value, amount) || amount < 0) return std::nullopt;
    total += amount * unit->second;
  }
  return total;
}

}  // namespace

bool asks_for_nothing(const std::string& option, const ConfigNode& value) {
  if (value.is_null()) return true;
  if (!value.is_scalar()) return !value.is_list() ? value.entries.empty() : value.items.empty();
  return std::any_of(kUnset.begin(), kUnset.end(),
                     [&](const auto& unset) { return option == unset.first && value.text == unset.second; });
}

bool has_interpolation(const ConfigNode& value) {
  return value.text.find("${") != std::string::npos ||
         std::any_of(value.items.begin(), value.items.end(), has_interpolation) ||
         std::any_of(value.entries.begin(), value.entries.end(),
                     [](const auto& entry) { return has_interpolation(entry.value); });
}

std::optional<ConfigNode> from_timedelta(const ConfigNode& value) {
  std::optional<double> seconds;
  if (value.is_map()) seconds = seconds_of(value);
  if (value.is_scalar()) {
    int days = 0;
    int hours = 0;
    int minutes = 0;
    int rest = 0;
    int end = 0;
    const char* text = value.text.c_str();
    const size_t comma = value.text.find(", ");
    if (comma != std::string::npos) {
      if (std::sscanf(text, "%6d day", &days) != 1) return std::nullopt;
      text += comma + 2;
    }
    if (std::sscanf(text, "%6d:%2d:%2d%n", &hours, &minutes, &rest, &end) != 3 || text[end] != '\0')
      return std::nullopt;
    if (days < 0 || hours < 0 || minutes < 0 || rest < 0) return std::nullopt;
    seconds = days * 86400.0 + hours * 3600.0 + minutes * 60.0 + rest;
  }
  if (!seconds) return std::nullopt;
  ConfigNode span = ValueType<Seconds>::write(Seconds(*seconds));
  span.mark = value.mark;
  return span;
}

}  // namespace levin
