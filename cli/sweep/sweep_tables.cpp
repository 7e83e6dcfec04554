#include "levin/cli/sweep/sweep_tables.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "levin/cli/sweep/sweep_store.h"
#include "levin/cli/sweep/trial_result.h"
#include "levin/core/files/files.h"
#include "levin/core/files/json_depth.h"
#include "levin/core/options/config_node.h"
#include "levin/core/options/error.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

using nlohmann::json;

constexpr const char* kNoCheckpoint =
    "none holds the weights of this value. With rank_by: best and a ModelCheckpoint that monitors the metric, trials "
    "keep them.";

// A JSON value as one of the range's values; unchanged if it is not among them.
std::string range_value(const json& value, const Range& range) {
  if (value.is_number_float()) {
    const double number = value.get<double>();
    const bool whole = range.kind == Range::Kind::integer && is_whole_number(number);
    return whole ? std::to_string(static_cast<int64_t>(number)) : number_text(number);
  }
  if (value.is_string() && range.contains(value.get<std::string>())) return value.get<std::string>();
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// The newest config.yaml below the folder, "" if there is none.
std::string newest_config(const std::string& folder) {
  std::string newest;
  fs::file_time_type time = {};
  std::error_code code;
  for (fs::recursive_directory_iterator at(folder, code), end; at != end && !code; at.increment(code)) {
    if (at->path().filename() != "config.yaml") continue;
    const auto written = at->last_write_time(code);
    if (!newest.empty() && written < time) continue;
    newest = at->path().string();
    time = written;
  }
  return newest;
}

// The file that holds the weights of the trial's value; "" if none does, or none does any more.
std::string checkpoint_of_trial(const Trial& trial) {
  if (trial.rungs.empty()) return "";
  const RungResult& last = trial.rungs.back();
  std::error_code code;
  if (last.checkpoint.empty() || !fs::exists(last.checkpoint, code)) return "";
  const bool is_same = last.checkpoint_step < 0 || step_of_checkpoint(last.checkpoint) == last.checkpoint_step;
  return is_same ? last.checkpoint : "";
}

std::vector<std::string> overrides_of(const Trial& trial) {
  std::vector<std::string> overrides;
  for (const auto& [path, value] : trial.parameters) overrides.push_back("--" + path + "=" + value);
  return overrides;
}

}  // namespace

Parameters read_parameters(const std::string& text, const Space& space, Problems& problems) {
  Parameters parameters;
  const json given = parse_json(text);
  if (!given.is_object()) {
    problems.add({}, "--params",
                 "expected a JSON object such as {\"optimizer.lr\": 0.01}, got " + cut_text(text) + ".");
    return parameters;
  }
  for (const auto& [key, value] : given.items()) {
    const bool known = std::any_of(space.begin(), space.end(), [&key = key](const Range& r) { return r.path == key; });
    std::vector<std::string> keys;
    for (const Range& range : space) keys.push_back(range.path);
    if (!known)
      problems.add({}, "--params", "\"" + cut_text(key) + "\" is not a key of the space. Known: " + join(keys) + ".");
  }
  for (const Range& range : space) {
    const auto found = given.find(range.path);
    if (found == given.end()) {
      problems.add({}, "--params", "\"" + range.path + "\" is missing. It takes " + range.str() + ".");
      continue;
    }
    const std::string value = range_value(*found, range);
    if (!range.contains(value)) {
      problems.add({}, "--params", range.path + ": " + cut_text(value) + " is not in " + range.str() + ".");
    }
    parameters.emplace_back(range.path, value);
  }
  return parameters;
}

json trial_json(const SweepStore& store, const Trial& trial) {
  json result;
  result["trial"] = trial.id;
  result["state"] = word(trial.state);
  result["value"] = trial.value() ? json(*trial.value()) : json();
  result["resource"] = trial.rungs.empty() ? 0 : trial.rungs.back().resource;
  result["parameters"] = json::object();
  for (const auto& [path, value] : trial.parameters) {
    const json read = parse_json(value);
    result["parameters"][path] = read.is_discarded() ? json(value) : read;
  }
  result["overrides"] = overrides_of(trial);
  result["folder"] = store.trial_folder(trial.id);
  result["config"] = newest_config(store.trial_folder(trial.id));
  result["checkpoint"] = checkpoint_of_trial(trial);
  result["error"] = trial.error;
  return result;
}

std::string best_text(const SweepStore& store, const std::vector<Trial>& trials) {
  const Trial* best = best_trial(trials, store.higher_is_better());
  if (best == nullptr) return "no trial has a value yet";
  std::string text = "best: trial " + std::to_string(best->id) + ", " + store.options().metric + " " +
                     short_number(*best->value()) + "\n";
  for (const auto& override : overrides_of(*best)) text += "  " + override + "\n";
  const json all = trial_json(store, *best);
  text += "configuration: " + all["config"].get<std::string>() + "\n";
  const auto checkpoint = all["checkpoint"].get<std::string>();
  return text + "checkpoint: " + (checkpoint.empty() ? kNoCheckpoint : checkpoint);
}

std::string progress_text(const SweepStore& store, const std::vector<Trial>& trials, int64_t total, double elapsed) {
  std::map<TrialState, int64_t> counts;
  for (const Trial& trial : trials) ++counts[trial.state];
  const int64_t ended = counts[TrialState::completed] + counts[TrialState::failed];
  const bool is_open = total > int64_t{1} << 40;
  std::string text = std::to_string(counts[TrialState::completed]) + (is_open ? "" : "/" + std::to_string(total)) +
                     " done, " + std::to_string(counts[TrialState::running]) + " running";
  for (const TrialState state : {TrialState::paused, TrialState::waiting, TrialState::failed}) {
    if (counts[state] > 0) text += ", " + std::to_string(counts[state]) + " " + word(state);
  }
  if (const Trial* best = best_trial(trials, store.higher_is_better())) {
    text += ", best " + store.options().metric + " " + short_number(*best->value()) + " (trial " +
            std::to_string(best->id) + ")";
  }
  const bool can_tell = !is_open && !store.options().search.has_rungs() && ended > 0 && ended < total;
  if (can_tell) {
    const double left = elapsed / static_cast<double>(ended) * static_cast<double>(total - ended);
    text += ", " + readable_duration(Seconds(left)) + " left";
  }
  return text;
}

std::string status_text(SweepStore& store, const std::vector<Trial>& trials, int64_t total) {
  const bool runs = SweepLock::is_held(store.folder());
  std::string text = store.plan().name + (runs ? ": running; " : ": not running; ") +
                     progress_text(store, trials, total, store.elapsed()) + "\n";
  for (const Trial& trial : trials) {
    std::string line = "  " + std::to_string(trial.id) + "  " + word(trial.state);
    if (trial.value()) line += "  " + short_number(*trial.value());
    if (!trial.rungs.empty() && trial.rungs.back().resource > 0) {
      line += " at " + std::to_string(trial.rungs.back().resource);
    }
    text += line + "  " + parameters_text(trial.parameters) + "\n";
    if (trial.state == TrialState::failed) text += "      " + trial.error.substr(0, trial.error.find('\n')) + "\n";
  }
  text.pop_back();
  return text;
}

json status_json(SweepStore& store, const std::vector<Trial>& trials, int64_t total) {
  json result;
  result["name"] = store.plan().name;
  result["running"] = SweepLock::is_held(store.folder());
  result["total"] = total;
  result["elapsed"] = store.elapsed();
  result["metric"] = store.options().metric;
  result["trials"] = json::array();
  for (const Trial& trial : trials) {
    json row = trial_json(store, trial);
    row["rungs"] = json::array();
    for (const auto& rung : trial.rungs) row["rungs"].push_back({{"resource", rung.resource}, {"value", rung.value}});
    row["failures"] = trial.failures;
    row["launches"] = trial.launches;
    row["pid"] = trial.pid;
    result["trials"].push_back(std::move(row));
  }
  return result;
}

}  // namespace levin
