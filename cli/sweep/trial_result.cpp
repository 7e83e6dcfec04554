#include "levin/cli/sweep/trial_result.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "levin/checkpoint/checkpoint_values.h"
#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/options/value.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

using nlohmann::json;

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

// The value at the end of the run, and a checkpoint of the weights that it was measured for: both count the training
// batches before it. Steps do not tell, because the last step before a validation may be counted already or not.
bool take_last(const json& result, const std::string& metric, TrialOutcome& outcome) {
  const auto value = metric_in(result, metric);
  if (!value) return false;
  outcome.value = *value;
  const json measured = result.value("measured_at", json::object());
  const json checkpoints = result.value("checkpoints", json::object());
  for (const auto& [path, saved] : checkpoints.items()) {
    if (!measured.contains(metric) || !saved.is_object() || saved.value("batches", json()) != measured[metric])
      continue;
    outcome.checkpoint = path;
    outcome.checkpoint_step = saved.value("step", int64_t{-1});
    break;
  }
  return true;
}

// The best value that a checkpoint callback has saved, and its file.
bool take_best(const json& result, const std::string& metric, const std::string& mode, TrialOutcome& outcome) {
  for (const json& best : result.value("best", json::array())) {
    if (best.value("monitor", "") != metric || best.value("mode", "") != mode) continue;
    const auto value = best.find("value");
    outcome.value = value != best.end() && value->is_number() ? value->get<double>() : std::nan("");
    outcome.checkpoint = best.value("checkpoint", "");
    outcome.checkpoint_step = step_of_checkpoint(outcome.checkpoint);
    return true;
  }
  return false;
}

}  // namespace

std::string result_file(const SweepStore& store, const Trial& trial) {
  return (fs::path(store.trial_folder(trial.id)) / ("result-" + std::to_string(trial.launches) + ".json")).string();
}

SavedPosition position_of_checkpoint(const std::string& path) {
  try {
    const ConfigNode values = load_checkpoint_values(path);
    const ConfigNode* progress = values.find("progress");
    Problems problems;
    const auto read = [&](const std::string& key, int64_t& value) {
      const ConfigNode* node = progress->find(key);
      return node != nullptr && ValueType<int64_t>::read(*node, value, key, problems);
    };
    SavedPosition saved;
    if (progress != nullptr && read("windows", saved.step) && read("total_batches", saved.batches)) return saved;
    return {};
  } catch (const Error&) {
    return {};
  }
}

int64_t step_of_checkpoint(const std::string& path) {
  return position_of_checkpoint(path).step;
}

TrialOutcome read_outcome(const SweepStore& store, const Trial& trial, bool ends) {
  std::error_code code;
  const std::string path = result_file(store, trial);
  if (!fs::exists(path, code)) return {};
  const json result = json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  if (!result.is_object()) return {};
  const std::string status = result.value("status", "");
  if (status == "interrupted" && !ends) return {.kind = TrialOutcome::Kind::stopped};
  TrialOutcome outcome{.kind = TrialOutcome::Kind::value, .finished = status == "success" || ends};
  const SweepOptions& options = store.options();
  const std::string& metric = options.metric;
  const std::string mode = ValueType<SweepMode>::write(options.mode).text;
  const bool by_best = options.rank_by == RankBy::best;
  if (by_best ? !take_best(result, metric, mode, outcome) : !take_last(result, metric, outcome)) {
    outcome.kind = TrialOutcome::Kind::unlogged;
    outcome.error =
        by_best && metric_in(result, metric)
            ? "no checkpoint callback of the run monitors \"" + metric + "\" with mode " + mode +
                  ", which rank_by: best needs. Add ModelCheckpoint to trainer.callbacks, or set rank_by: last."
            : unlogged_text(result, metric);
  } else if (!std::isfinite(outcome.value)) {
    outcome.kind = TrialOutcome::Kind::failed;
    outcome.error = metric + " is " + number_text(outcome.value) + ".";
  }
  return outcome;
}

}  // namespace levin
