#include "levin/cli/commands/sweep_setup.h"

#include <array>
#include <filesystem>

#include "levin/cli/config/resolve_run.h"
#include "levin/core/error.h"
#include "levin/core/files.h"
#include "levin/yaml/yaml_file.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

// What may change when a sweep goes on: the trials stay the same.
constexpr std::array kLimits{"max_trials",    "max_time",    "slots",        "cores_per_slot",
                             "gpus_per_slot", "max_retries", "max_failures", "folder"};

// A run file is found beside the sweep file.
std::vector<ConfigSource> sources_of(const ConfigNode& run, const std::string& sweep_file) {
  if (run.is_scalar()) return {ConfigFile{(fs::path(sweep_file).parent_path() / run.text).string()}};
  std::vector<ConfigSource> sources;
  for (const auto& entry : run.entries) sources.emplace_back(Override{entry.key, override_text(entry.value)});
  return sources;
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
  for (const char* key : {"metric", "mode"}) node.erase(key);
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

}  // namespace

std::unique_ptr<SweepStore> open_sweep(const std::string& path, const std::string& folder, Problems& problems) {
  SweepFile file = read_sweep_file(path, problems);
  if (!problems.empty()) return nullptr;
  const std::vector<ConfigSource> sources = sources_of(file.options.run, path);
  const ResolvedRun run = resolve_run(sources, RunPlace::here, problems);
  require_model(run, problems);
  if (!problems.empty()) return nullptr;
  check_space(sources, file.space, problems);
  const int64_t max_resource = max_resource_of(file, run, problems);
  if (!problems.empty()) return nullptr;

  const std::string chosen = !folder.empty() ? folder : file.options.folder.empty() ? file.name : file.options.folder;
  const std::string place = fs::absolute(chosen).lexically_normal().string();
  const std::string run_file = (fs::path(place) / "run.yaml").string();
  file.options.folder = "";
  file.options.run = ConfigNode::scalar("run.yaml");
  const ConfigNode now = write_options(file.options);
  const std::string run_text = to_yaml(run.printed);
  if (!SweepStore::exists(place)) {
    make_folder(place);
    write_file_durably(run_file, run_text);
    return std::make_unique<SweepStore>(
        SweepStore::create(place, {file.name, to_yaml(now), fs::current_path().string(), max_resource}));
  }
  auto store = std::make_unique<SweepStore>(place);
  const ConfigNode before = read_yaml_text(store->plan().sweep, "sweep", problems);
  const bool is_ranked = any_has_value(store->trials());
  std::string changed = difference(without_limits(before, is_ranked), without_limits(now, is_ranked));
  if (changed == "none" && read_file(run_file) != run_text) changed = "run";
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
