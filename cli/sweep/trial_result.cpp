#include "levin/cli/sweep/trial_result.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "levin/core/error.h"
#include "levin/core/files.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

using nlohmann::json;

// The last value of a column in the run's newest metrics.csv: for a run that was complete when it was started again,
// and so has no metrics of its own.
std::optional<double> last_logged(const std::string& folder, const std::string& metric) {
  std::string newest;
  fs::file_time_type time = {};
  std::error_code code;
  for (fs::recursive_directory_iterator at(folder, code), end; at != end && !code; at.increment(code)) {
    if (at->path().filename() != "metrics.csv") continue;
    const auto written = at->last_write_time(code);
    if (!newest.empty() && written < time) continue;
    newest = at->path().string();
    time = written;
  }
  std::ifstream file(newest);
  std::string line;
  std::optional<double> value;
  size_t column = std::string::npos;
  while (!newest.empty() && std::getline(file, line)) {
    std::vector<std::string> cells;
    std::istringstream row(line);
    for (std::string cell; std::getline(row, cell, ',');) cells.push_back(cell);
    if (column == std::string::npos) {
      const auto at = std::find(cells.begin(), cells.end(), metric);
      if (at == cells.end()) return std::nullopt;
      column = static_cast<size_t>(at - cells.begin());
    } else if (column < cells.size() && !cells[column].empty()) {
      value = std::strtod(cells[column].c_str(), nullptr);
    }
  }
  return value;
}

// nlohmann-json writes nan as null.
std::optional<double> metric_in(const json& result, const std::string& metric) {
  const auto metrics = result.find("metrics");
  if (metrics == result.end() || !metrics->is_object() || !metrics->contains(metric)) return std::nullopt;
  const json& value = metrics->at(metric);
  return value.is_number() ? value.get<double>() : std::nan("");
}

std::string unlogged_text(const json& result, const std::string& metric) {
  std::vector<std::string> names;
  if (result.contains("metrics") && result["metrics"].is_object()) {
    for (const auto& [name, value] : result["metrics"].items()) names.push_back(name);
  }
  return "the run did not log \"" + metric + "\"." + did_you_mean(metric, names) + " Logged: " + join(names) +
         ". Set metric in the sweep file to one of them.";
}

}  // namespace

std::string result_file(const SweepStore& store, const Trial& trial) {
  return (fs::path(store.trial_folder(trial.id)) / ("result-" + std::to_string(trial.launches) + ".json")).string();
}

TrialOutcome read_outcome(const SweepStore& store, const Trial& trial) {
  std::error_code code;
  const std::string path = result_file(store, trial);
  if (!fs::exists(path, code)) return {};
  const json result = json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  if (!result.is_object()) return {};
  const std::string status = result.value("status", "");
  if (status == "interrupted") return {.kind = TrialOutcome::Kind::stopped};
  TrialOutcome outcome{.kind = TrialOutcome::Kind::value, .finished = status == "success"};
  const std::string& metric = store.options().metric;
  auto value = metric_in(result, metric);
  if (!value) value = last_logged(store.trial_folder(trial.id), metric);
  if (!value) {
    outcome.kind = TrialOutcome::Kind::unlogged;
    outcome.error = unlogged_text(result, metric);
  } else if (!std::isfinite(*value)) {
    outcome.kind = TrialOutcome::Kind::failed;
    outcome.error = metric + " is " + number_text(*value) + ".";
  } else {
    outcome.value = *value;
  }
  return outcome;
}

}  // namespace levin
