#include "levin/cli/sweep/trial.h"

#include <algorithm>
#include <cmath>

namespace levin {

bool any_has_value(const std::vector<Trial>& trials) {
  return std::any_of(trials.begin(), trials.end(), [](const Trial& trial) { return trial.value().has_value(); });
}

const char* word(TrialState state) {
  switch (state) {
    case TrialState::waiting: return "waiting";
    case TrialState::running: return "running";
    case TrialState::paused: return "paused";
    case TrialState::completed: return "completed";
    case TrialState::failed: return "failed";
  }
  return "";
}

std::string parameters_text(const Parameters& parameters) {
  std::string text;
  for (const auto& [path, value] : parameters) text += (text.empty() ? "" : " ") + path + "=" + value;
  return text;
}

bool is_better(double value, double than, bool higher_is_better) {
  if (std::isnan(value)) return false;
  if (std::isnan(than)) return true;
  return higher_is_better ? value > than : value < than;
}

const Trial* best_trial(const std::vector<Trial>& trials, bool higher_is_better) {
  const Trial* best = nullptr;
  for (const Trial& trial : trials) {
    if (trial.rungs.empty() || trial.state == TrialState::failed || std::isnan(trial.rungs.back().value)) continue;
    if (best == nullptr) {
      best = &trial;
      continue;
    }
    const int64_t reached = trial.rungs.back().resource, most = best->rungs.back().resource;
    const bool further = reached > most;
    const bool as_far = reached == most;
    if (further || (as_far && is_better(trial.rungs.back().value, best->rungs.back().value, higher_is_better))) {
      best = &trial;
    }
  }
  return best;
}

}  // namespace levin
