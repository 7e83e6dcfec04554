#include "levin/cli/commands/sweep_setup.h"

#include <array>
#include <chrono>
#include <filesystem>
#include <thread>
#include <variant>

#include "levin/cli/config/resolve_run.h"
#include "levin/cli/sweep/sweep_lock.h"
#include "levin/core/error.h"
#include "levin/core/files.h"
#include "levin/yaml/yaml_file.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

// What may change when a sweep goes on: the trials stay the same.
constexpr std::array kLimits{"max_trials",    "max_time",    "max_trial_time", "slots", "cores_per_slot",
                             "gpus_per_slot", "max_retries", "max_failures",   "folder"};
constexpr std::chrono::milliseconds kBetweenAttempts(50);

// A run file is found beside the sweep file. The command line's overrides come last.
std::vector<ConfigSource> sources_of(const SweepFile& file, const SweepWords& words, Problems& problems) {
  const ConfigNode& run = file.options.run;
  std::vector<ConfigSource> sources;
  if (run.is_scalar()) sources = {ConfigFile{(fs::path(words.names[0]).parent_path() / run.text).string()}};
  for (const auto& entry : run.entries) sources.emplace_back(Override{entry.key, override_text(entry.value)});
  for (const ConfigSource& source : read_fit_words(words.run_words, problems)) {
    const auto* change = std::get_if<Override>(&source);
    for (const Range& range : file.space) {
      if (change == nullptr || change->path != range.path) continue;
      problems.add(range.mark, "space." + range.path,
                   "every trial has a value of its own, so " + change->str() +
                       " would change nothing. Remove the override, or the key of the space.");
    }
    sources.push_back(source);
  }
  return sources;
}

// "best" is what a checkpoint callback saves, so that its value and its file belong together.
void check_rank_by(const SweepOptions& options, const ResolvedRun& run, Problems& problems) {
  if (options.rank_by != RankBy::best) return;
  const std::string mode = ValueType<SweepMode>::write(options.mode).text;
  const ConfigNode* trainer = run.printed.find("trainer");
  const ConfigNode* callbacks = trainer == nullptr ? nullptr : trainer->find("callbacks");
  for (const ConfigNode& callback : callbacks == nullptr ? std::vector<ConfigNode>() : callbacks->items) {
    const ConfigNode* init_args = callback.find("init_args");
    const auto text = [&](const char* key) {
      const ConfigNode* value = init_args == nullptr ? nullptr : init_args->find(key);
      return value == nullptr ? std::string() : value->text;
    };
    const ConfigNode* kind = callback.find("class_path");
    const bool saves = kind != nullptr && kind->text.ends_with("Checkpoint");
    const bool same_mode = text("mode") == mode || (text("mode").empty() && options.mode == SweepMode::min);
    if (saves && text("monitor") == options.metric && same_mode && text("save_top_k") != "0") return;
  }
  problems.add({}, "rank_by",
               "best needs a checkpoint of the best value, and no callback of the run saves one. Add {class_path: "
               "ModelCheckpoint, init_args: {monitor: " +
                   options.metric + ", mode: " + mode + "}} to trainer.callbacks, or set rank_by: last.");
}

// Each end of a range and each choice in its place in the run, so that no trial fails for it later.
void check_space(const std::vector<ConfigSource>& run, const Space& space, Problems& problems) {
  for (const Range& range : space) {
    for (const auto& value : range.values_to_check()) {
      Problems found;
      std::vector<ConfigSource> sources = run;
      sources.emplace_back(Override{range.path, value});
      (void)resolve_run(sources, RunPlace::here, found);
      for (const auto& line : found.lines()) problems.add(range.mark, "space." + range.path, line);
    }
  }
}

// The resource of the best trials: the run's own limit, or less.
int64_t max_resource_of(const SweepFile& file, const ResolvedRun& run, Problems& problems) {
  const SearchOptions& search = file.options.search;
  if (!search.has_rungs()) return 0;
  const bool epochs = search.resource == Resource::epochs;
  const std::string name = epochs ? "trainer.max_epochs" : "trainer.max_steps";
  const int64_t limit = epochs ? run.trainer.max_epochs.value_or(-1) : run.trainer.max_steps;
  if (limit < 1) {
    problems.add({}, "search",
                 "the run sets no " + name +
                     ", which is what its schedules are made for. Set it in the run file to what the best "
                     "trials get.");
    return 0;
  }
  for (const Range& range : file.space) {
    if (range.path == name) problems.add(range.mark, "space." + name, "asha and hyperband decide it. Remove the key.");
  }
  if (run.trainer.enable_checkpointing && !*run.trainer.enable_checkpointing) {
    problems.add({}, "trainer.enable_checkpointing",
                 "is false, and a paused trial is a checkpoint. Remove the key, or search by random or sobol.");
  }
  const int64_t most = search.max_resource.value_or(limit);
  if (most > limit) {
    problems.add({}, "search.max_resource",
                 std::to_string(most) + " is more than the run's " + name + ", " + std::to_string(limit) +
                     ". Lower one or raise the other.");
  }
  if (search.min_resource > most) {
    problems.add({}, "search.min_resource",
                 std::to_string(search.min_resource) + " is more than the " + std::to_string(most) + " of " + name +
                     ". Lower it.");
  }
  return most;
}

// Without the keys that may change. What ranks the trials may change as long as none has a value: it was misspelt.
ConfigNode without_limits(ConfigNode node, bool is_ranked) {
  for (const char* key : kLimits) node.erase(key);
  if (is_ranked) return node;
  for (const char* key : {"metric", "mode", "rank_by"}) node.erase(key);
  return node;
}

// The keys in which two sweeps differ.
std::string difference(const ConfigNode& before, const ConfigNode& now) {
  std::vector<std::string> keys;
  for (const auto& entry : now.entries) {
    const ConfigNode* old = before.find(entry.key);
    if (old == nullptr || !old->same_as(entry.value)) keys.push_back(entry.key);
  }
  return join(keys);
}

// Under the lock of the sweep that is to be, because others may begin it at the same time.
void create_once(const std::string& folder, const SweepStore::Plan& plan, const std::string& run_text) {
  make_folder(folder);
  while (!SweepStore::exists(folder)) {
    if (const auto lock = SweepLock::try_take(folder); lock && !SweepStore::exists(folder)) {
      write_file_durably((fs::path(folder) / "run.yaml").string(), run_text);
      (void)SweepStore::create(folder, plan);
    } else if (!lock) {
      std::this_thread::sleep_for(kBetweenAttempts);  // another process makes it
    }
  }
}

}  // namespace

std::unique_ptr<SweepStore> open_sweep(const SweepWords& words, Problems& problems) {
  const std::string& path = words.names[0];
  SweepFile file = read_sweep_file(path, words.changes, problems);
  if (!problems.empty()) return nullptr;
  const std::vector<ConfigSource> sources = sources_of(file, words, problems);
  if (!problems.empty()) return nullptr;
  const ResolvedRun run = resolve_run(sources, RunPlace::here, problems);
  require_model(run, problems);
  if (!problems.empty()) return nullptr;
  check_space(sources, file.space, problems);
  check_rank_by(file.options, run, problems);
  const int64_t max_resource = max_resource_of(file, run, problems);
  if (!problems.empty()) return nullptr;

  const std::string& own = file.options.folder.empty() ? file.name : file.options.folder;
  const std::string place = fs::absolute(words.folder.empty() ? own : words.folder).lexically_normal().string();
  file.options.folder = "";
  file.options.run = ConfigNode::scalar("run.yaml");
  const ConfigNode now = write_options(file.options);
  const std::string run_text = to_yaml(run.printed);
  create_once(place, {file.name, to_yaml(now), fs::current_path().string(), max_resource, run.trainer.stop_grace},
              run_text);
  auto store = std::make_unique<SweepStore>(place);
  const ConfigNode before = read_yaml_text(store->plan().sweep, "sweep", problems);
  const bool is_ranked = any_has_value(store->trials());
  std::string changed = difference(without_limits(before, is_ranked), without_limits(now, is_ranked));
  if (changed == "none" && read_file((fs::path(place) / "run.yaml").string()) != run_text) changed = "run";
  if (changed != "none") {
    problems.add({}, path,
                 "the sweep in " + place + " was begun with another " + changed +
                     ". Restore the old values, or begin a new sweep with --folder NAME.");
    return nullptr;
  }
  if (!before.same_as(now)) store->change_limits(to_yaml(now));
  return store;
}

}  // namespace levin
