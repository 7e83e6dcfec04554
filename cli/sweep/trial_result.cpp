#include "levin/cli/sweep/trial_result.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>
#include <vector>

#include "levin/checkpoint/checkpoint_values.h"
#include "levin/core/files/files.h"
#include "levin/core/files/json_depth.h"
#include "levin/core/options/error.h"
#include "levin/core/options/value.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

using nlohmann::json;

constexpr uint64_t kMaxResultBytes = 64 << 20;

// The member `key`; the fallback if there is none, or one of another type: the file may be damaged.
template <class T>
T member_or(const json& object, const char* key, T fallback) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end()) return fallback;
  if constexpr (std::is_same_v<T, std::string>) return found->is_string() ? found->get<std::string>() : fallback;
  if constexpr (std::is_same_v<T, int64_t>) return found->is_number_integer() ? found->get<int64_t>() : fallback;
  if constexpr (std::is_same_v<T, json>) return found->type() == fallback.type() ? *found : fallback;
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

// The value at the end of the run, and a checkpoint of the weights that it was measured for: both count the training
// batches before it. Steps do not tell, because the last step before a validation may be counted already or not.
bool take_last(const json& result, const std::string& metric, TrialOutcome& outcome) {
  const auto value = metric_in(result, metric);
  if (!value) return false;
  outcome.value = *value;
  const json measured = member_or(result, "measured_at", json::object());
  const json checkpoints = member_or(result, "checkpoints", json::object());
  for (const auto& [path, saved] : checkpoints.items()) {
    if (!measured.contains(metric) || !saved.is_object() || !saved.contains("batches") ||
        saved["batches"] != measured[metric])
      continue;
    outcome.checkpoint = path;
    outcome.checkpoint_step = member_or(saved, "step", int64_t{-1});
    break;
  }
  return true;
}

// The best value that a checkpoint callback has saved, and its file.
bool take_best(const json& result, const std::string& metric, const std::string& mode, TrialOutcome& outcome) {
  for (const json& best : member_or(result, "best", json::array())) {
    const auto text = [&best](const char* key) { return member_or(best, key, std::string()); };
    if (text("monitor") != metric || text("mode") != mode) continue;
    const auto value = best.find("value");
    outcome.value = value != best.end() && value->is_number() ? value->get<double>() : std::nan("");
    outcome.checkpoint = text("checkpoint");
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
  const json result = parse_json(read_file(path, kMaxResultBytes));
  if (!result.is_object()) return {};
  const std::string status = member_or(result, "status", std::string());
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
