#include "levin/cli/commands/sweep.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>
#include <variant>

#include "levin/cli/commands/help_text.h"
#include "levin/cli/commands/report.h"
#include "levin/cli/commands/submit_job.h"
#include "levin/cli/config/arguments.h"
#include "levin/cli/config/resolve_run.h"
#include "levin/cli/config/text_layout.h"
#include "levin/cli/sweep/runner.h"
#include "levin/cli/sweep/searcher.h"
#include "levin/cli/sweep/sweep_options.h"
#include "levin/cli/sweep/sweep_report.h"
#include "levin/cli/sweep/sweep_store.h"
#include "levin/cli/sweep/sweep_tables.h"
#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/main_guard.h"
#include "levin/core/process/run_command.h"
#include "levin/core/process/this_process.h"
#include "levin/yaml/yaml_file.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

struct SweepArguments {
  std::vector<std::string> names = {};          // what precedes the first option
  std::vector<Override> changes = {};           // of keys of the sweep file
  std::vector<std::string> run_arguments = {};  // the other overrides, as levin fit takes them
  std::string folder = "", params = "", value = "", output = "", timeout = "";
  bool json = false, prepare = false, slurm = false;
  std::vector<std::pair<std::string, std::string>> slurm_options = {};
  bool help = false;
};

// A command on the folder of a sweep. It prints to the Console and returns the exit code.
struct SweepFolderCommand {
  const char* name;
  size_t names;  // arguments, its name included
  int (*run)(SweepStore&, const SweepArguments&);
};

// "--search.method=asha" or "--slots 4". Keys of `space` contain dots themselves, so they are in the file only.
SweepArguments read_sweep_arguments(const std::vector<std::string>& arguments, Problems& problems) {
  const SplitArguments first = split_arguments(arguments, own_sweep_arguments().options, problems);
  SweepArguments read;
  read.help = first.help;
  for (const auto& [name, text] :
       {std::pair{"folder", &read.folder}, std::pair{"params", &read.params}, std::pair{"value", &read.value},
        std::pair{"output", &read.output}, std::pair{"timeout", &read.timeout}}) {
    if (const ConfigNode* given = first.options.find(name)) *text = given->text;
  }
  for (const auto& [name, flag] :
       {std::pair{"json", &read.json}, std::pair{"prepare", &read.prepare}, std::pair{"slurm", &read.slurm}}) {
    const ConfigNode* given = first.options.find(name);
    *flag = given != nullptr && given->text == "true";
  }
  const ConfigNode* slurm_options = first.options.find("slurm-option");
  for (const ConfigNode& option : slurm_options == nullptr ? std::vector<ConfigNode>() : slurm_options->items) {
    const size_t equals = option.text.find('=');
    if (equals == std::string::npos || equals == 0) {
      problems.add({}, "--slurm-option", "expected NAME=VALUE, got \"" + cut_text(option.text) + "\".");
    } else {
      read.slurm_options.emplace_back(option.text.substr(0, equals), option.text.substr(equals + 1));
    }
  }
  const size_t names = static_cast<size_t>(
      std::find_if(first.rest.begin(), first.rest.end(), [](const auto& each) { return each.starts_with("-"); }) -
      first.rest.begin());
  read.names.assign(first.rest.begin(), first.rest.begin() + static_cast<std::ptrdiff_t>(names));
  const std::vector<std::string> keys = field_names<SweepOptions>();
  for (size_t k = names; k < first.rest.size(); ++k) {
    const std::string& argument = first.rest[k];
    const size_t equals = std::min(argument.find('='), argument.size());
    const std::string path = argument.starts_with("--") ? argument.substr(2, equals - 2) : "";
    const std::string key = path.substr(0, path.find('.'));
    if (key == "space" || std::find(keys.begin(), keys.end(), key) == keys.end()) {
      read.run_arguments.push_back(argument);
    } else if (equals < argument.size()) {
      read.changes.push_back({path, argument.substr(equals + 1)});
    } else if (k + 1 < first.rest.size()) {
      read.changes.push_back({path, first.rest[++k]});
    } else {
      problems.add({}, argument, "no value follows. Write " + argument + "=VALUE.");
    }
  }
  return read;
}

// The keys that may change when a sweep is continued, because they leave its trials unchanged.
constexpr std::array kLimits{"max_trials",    "max_time",    "max_trial_time", "slots", "cores_per_slot",
                             "gpus_per_slot", "max_retries", "max_failures",   "folder"};
constexpr std::chrono::milliseconds kBetweenAttempts(50);

// The run file is relative to the folder of the sweep file. The command line's overrides come last.
std::vector<ConfigSource> sources_of(const SweepFile& file, const SweepArguments& given, Problems& problems) {
  const ConfigNode& run = file.options.run;
  std::vector<ConfigSource> sources;
  if (run.is_scalar()) sources = {ConfigFile{(fs::path(given.names[0]).parent_path() / run.text).string()}};
  for (const auto& entry : run.entries) sources.emplace_back(Override{entry.key, override_text(entry.value)});
  for (const ConfigSource& source : read_fit_arguments(given.run_arguments, problems)) {
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

// Checks each end of a range and each choice as a value of the run, so that no trial fails for it later.
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

// Whether the run of a sweep is the one that the sweep was begun with. A sweep of an earlier version lacks the options
// that have been added since: they have their defaults.
bool is_run_of(const std::string& folder, const std::string& run_text) {
  const std::string file = (fs::path(folder) / "run.yaml").string();
  if (read_file(file) == run_text) return true;
  Problems unreadable;
  const ResolvedRun before = resolve_run({ConfigFile{file}}, RunPlace::here, unreadable);
  return unreadable.empty() && to_yaml(before.printed) == run_text;
}

// Reads the sweep file and its run file with the command line's overrides, checks every value that the sweep may take
// by the options' own rules, and creates the folder. A sweep that exists is continued, with new limits if they have
// changed; any other change is a problem. Null if there are problems. If several processes start the same sweep at
// once, one of them creates it.
std::unique_ptr<SweepStore> open_sweep(const SweepArguments& given, Problems& problems) {
  const std::string& path = given.names[0];
  SweepFile file = read_sweep_file(path, given.changes, problems);
  if (!problems.empty()) return nullptr;
  const std::vector<ConfigSource> sources = sources_of(file, given, problems);
  if (!problems.empty()) return nullptr;
  const ResolvedRun run = resolve_run(sources, RunPlace::here, problems);
  require_model(run, problems);
  if (!problems.empty()) return nullptr;
  check_space(sources, file.space, problems);
  check_rank_by(file.options, run, problems);
  const int64_t max_resource = max_resource_of(file, run, problems);
  if (!problems.empty()) return nullptr;

  const std::string& own = file.options.folder.empty() ? file.name : file.options.folder;
  const std::string place = fs::absolute(given.folder.empty() ? own : given.folder).lexically_normal().string();
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
  if (changed == "none" && !is_run_of(place, run_text)) changed = "run";
  if (changed != "none") {
    problems.add({}, path,
                 "the sweep in " + place + " was started with a different " + changed +
                     ". Restore the old values, or start a new sweep with --folder NAME.");
    return nullptr;
  }
  if (!before.same_as(now)) store->change_limits(to_yaml(now));
  return store;
}

// The levin tool that runs now.
std::string this_program() {
  return fs::read_symlink("/proc/self/exe").string();
}

int64_t trial_number(const std::string& text) {
  int64_t id = -1;
  if (!detail::parse_int(ConfigNode::scalar(text), id)) {
    throw ConfigError("levin sweep: expected a trial's number, got \"" + cut_text(text) + "\".");
  }
  return id;
}

int ask(SweepStore& store, const SweepArguments& given) {
  Parameters chosen;
  if (!given.params.empty()) {
    Problems problems;
    chosen = read_parameters(given.params, store.space(), problems);
    if (!problems.empty()) return report_problems(problems, "no trial was added.");
  }
  const auto& most = store.options().max_trials;
  const auto id = store.add([&](int64_t count) -> std::optional<SweepStore::NewTrial> {
    if (most && count >= *most) return std::nullopt;
    return SweepStore::NewTrial{given.params.empty() ? parameters_of(store.options(), store.space(), count) : chosen};
  });
  if (!id) {
    Console::instance().error("sweep: all " + count_of(*most, "trial") +
                              " were asked for (max_trials). Raise it in the sweep file and call levin sweep again.");
    return kExitRunFailed;
  }
  const Trial trial = store.trial(*id);
  Console::instance().print(given.json ? trial_json(store, trial).dump()
                                       : "trial " + std::to_string(*id) + ": " + parameters_text(trial.parameters));
  return kExitOk;
}

int tell(SweepStore& store, const SweepArguments& given) {
  const int64_t id = trial_number(given.names[2]);
  double value = 0;
  if (!detail::parse_double(ConfigNode::scalar(given.value), value)) {
    throw ConfigError("levin sweep tell: --value: expected a number, got \"" + cut_text(given.value) + "\".");
  }
  const Trial trial = store.trial(id);
  if (store.tell(id, value, seconds_since_1970())) return kExitOk;
  Console::instance().error("sweep: trial " + std::to_string(id) + " is " + word(trial.state) +
                            ", and only one that waits and was never started takes a value from outside.");
  return kExitRunFailed;
}

int wait_for(SweepStore& store, const SweepArguments& given) {
  const int64_t id = trial_number(given.names[2]);
  double most = 1e18;
  if (!given.timeout.empty() && !detail::parse_double(ConfigNode::scalar(given.timeout), most)) {
    throw ConfigError("levin sweep wait: --timeout: expected seconds, got \"" + cut_text(given.timeout) + "\".");
  }
  const auto begin = std::chrono::steady_clock::now();
  while (true) {
    const Trial trial = store.trial(id);
    const bool completed = trial.state == TrialState::completed;
    if (completed || trial.state == TrialState::failed) {
      Console::instance().print(given.json  ? trial_json(store, trial).dump()
                                : completed ? number_text(*trial.value())
                                            : "failed: " + trial.error);
      return completed ? kExitOk : kExitRunFailed;
    }
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() >= most) {
      Console::instance().error("sweep: trial " + std::to_string(id) + " is still " + word(trial.state) + " after " +
                                given.timeout + " s. Is levin sweep running?");
      return kExitRunFailed;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

int best(SweepStore& store, const SweepArguments& given) {
  const auto trials = store.trials();
  const Trial* found = best_trial(trials, store.higher_is_better());
  if (found == nullptr) {
    Console::instance().error("sweep: no trial in " + store.folder() + " has a value yet.");
    return kExitRunFailed;
  }
  Console::instance().print(given.json ? trial_json(store, *found).dump() : best_text(store, trials));
  return kExitOk;
}

int report(SweepStore& store, const SweepArguments& given) {
  const std::string page = sweep_html(store, store.trials());
  const bool is_named = !given.output.empty();
  const std::string file = is_named ? given.output : (fs::path(store.folder()) / "report.html").string();
  is_named ? write_output(file, page) : void(write_file_durably(file, page));
  Console::instance().print(file);
  return kExitOk;
}

int run_one_trial(SweepStore& store, const SweepArguments& given) {
  const int64_t id = trial_number(given.names[2]);
  (void)store.trial(id);
  const SweepResult result = run_sweep(store, this_program(), id);
  if (result.end == SweepEnd::stopped) return 128 + result.signal_number;
  const Trial trial = store.trial(id);
  if (trial.state == TrialState::completed) return kExitOk;
  Console::instance().error("trial " + std::to_string(id) + ": " + trial.error);
  return kExitRunFailed;
}

int status(SweepStore& store, const SweepArguments& given) {
  const auto trials = store.trials();
  const auto searcher = make_searcher(store.options(), store.space(), store.plan().max_resource);
  Console::instance().print(given.json ? status_json(store, trials, searcher->total()).dump()
                                       : status_text(store, trials, searcher->total()));
  return kExitOk;
}

constexpr std::array kSweepFolderCommands{
    SweepFolderCommand{"status", 2, status},      SweepFolderCommand{"best", 2, best},
    SweepFolderCommand{"report", 2, report},      SweepFolderCommand{"ask", 2, ask},
    SweepFolderCommand{"tell", 3, tell},          SweepFolderCommand{"wait", 3, wait_for},
    SweepFolderCommand{"trial", 3, run_one_trial}};

// Null if no command has this name.
const SweepFolderCommand* find_sweep_folder_command(const std::string& name) {
  const auto found = std::find_if(kSweepFolderCommands.begin(), kSweepFolderCommands.end(),
                                  [&](const SweepFolderCommand& command) { return command.name == name; });
  return found == kSweepFolderCommands.end() ? nullptr : &*found;
}

constexpr std::array kSweepHelp{
    std::pair{"FILE [--folder FOLDER] [overrides…]",
              "run the sweep of this file, or continue it; the folder is named like the file. An override is of a key "
              "of the file (--max_trials=40, --search.method=sobol) or of the run (--trainer.max_epochs=5)"},
    std::pair{"FILE --prepare", "check everything and make the folder, and run nothing"},
    std::pair{"FILE --slurm [--slurm-option NAME=VALUE]",
              "run the trials as tasks of a Slurm array (grid, random, sobol)"},
    std::pair{"status FOLDER [--json]", "how far it is, and a table of the trials"},
    std::pair{"best FOLDER [--json]", "the best trial: its options, its configuration and its checkpoint"},
    std::pair{"report FOLDER [--output FILE]", "write a page about it, FOLDER/report.html"},
    std::pair{"ask FOLDER [--params JSON] [--json]", "add a trial, with parameters chosen elsewhere or by the sweep"},
    std::pair{"tell FOLDER TRIAL --value X", "the metric of a trial that was run elsewhere"},
    std::pair{"wait FOLDER TRIAL [--timeout S] [--json]", "wait for the end of a trial, and print its value"},
};

int report_end(SweepStore& store, const SweepResult& result, const std::string& again) {
  Console& console = Console::instance();
  const auto trials = store.trials();
  const auto searcher = make_searcher(store.options(), store.space(), store.plan().max_resource);
  console.print(progress_text(store, trials, searcher->total(), store.elapsed()));
  switch (result.end) {
    case SweepEnd::stopped:
      console.error("the sweep was stopped; its trials are at checkpoints. To continue: " + again);
      return 128 + result.signal_number;
    case SweepEnd::too_many_failures:
      console.error("the sweep ends after " + count_of(store.options().max_failures, "failed trial") +
                    " in a row (max_failures). The last one: " + result.problem + "\nTo continue: " + again);
      return kExitRunFailed;
    case SweepEnd::unlogged_metric:
      console.error("the sweep ends, because no trial can be ranked: " + result.problem +
                    " The trials are kept. Then continue with: " + again);
      return kExitRunFailed;
    case SweepEnd::out_of_time:
      console.print("The sweep ends because its time is over (max_time). To continue with a longer one: " + again);
      break;
    case SweepEnd::finished: break;
  }
  if (best_trial(trials, store.higher_is_better()) == nullptr) {
    console.error("no trial has a value. levin sweep status " + store.folder() + " shows why.");
    return kExitRunFailed;
  }
  console.print(best_text(store, trials));
  return kExitOk;
}

int submit_to_slurm(SweepStore& store, const SweepArguments& given) {
  Console& console = Console::instance();
  const SearchMethod method = store.options().search.method;
  if (store.options().search.has_rungs() || method == SearchMethod::ask) {
    console.error(
        "sweep: --slurm knows all trials beforehand, so it takes grid, random and sobol, and this sweep's method "
        "is " +
        ValueType<SearchMethod>::write(method).text +
        ". Run levin sweep inside one job with slots, or choose another method.");
    return kExitBadConfig;
  }
  const int64_t total = make_searcher(store.options(), store.space(), 0)->total();
  while (store.add([&](int64_t id) {
    return id < total ? std::optional(SweepStore::NewTrial{parameters_of(store.options(), store.space(), id)})
                      : std::nullopt;
  })) {
  }
  SubmitJob job;
  job.name = store.plan().name;
  job.folder = store.plan().working_folder;
  job.output = (fs::path(store.folder()) / "slurm-%a.out").string();
  job.gpus_per_node = store.options().gpus_per_slot;
  job.slurm = given.slurm_options;
  if (store.options().cores_per_slot > 0) {
    job.slurm.emplace_back("cpus-per-task", std::to_string(store.options().cores_per_slot));
  }
  job.command = {this_program(), "sweep", "trial", store.folder()};
  for (const Trial& trial : store.trials()) {
    if (trial.state == TrialState::waiting) job.points.push_back({std::to_string(trial.id)});
  }
  if (job.points.empty()) {
    console.print("No trial is left to run. levin sweep best " + store.folder() + " names the best.");
    return kExitOk;
  }
  return submit_script((fs::path(store.folder()) / "sweep.sbatch").string(), job, "sweep");
}

int sweep_file(const SweepArguments& given, const std::string& again) {
  Problems problems;
  const auto store = open_sweep(given, problems);
  if (!problems.empty()) {
    return report_problems(problems,
                           count_of(problems.size(), "problem") + "; nothing was run. See levin sweep --help.");
  }
  if (given.prepare) {
    Console::instance().print("The sweep is prepared in " + store->folder() + ".");
    return kExitOk;
  }
  if (given.slurm) return submit_to_slurm(*store, given);
  Console::instance().print("The sweep is in " + store->folder() + ".");
  const SweepResult result = run_sweep(*store, this_program());
  return report_end(*store, result, again);
}

std::string sweep_usage(int width) {
  std::string out = "levin sweep …\n\n";
  for (const auto& [usage, doc] : kSweepHelp) out += described(usage, doc, width);
  out += "\n" + wrapped("Keys of the file:", width);
  for (const auto& option : describe_options<SweepOptions>()) {
    if (option.name != "search") out += described(option.name, option.doc, width);
  }
  for (const auto& option : describe_options<SearchOptions>()) {
    out += described("search." + option.name, option.doc, width);
  }
  return out;
}

}  // namespace

OwnArguments own_sweep_arguments() {
  using Kind = OwnOption::Kind;
  OwnArguments own{{{"folder"},
                    {"params"},
                    {"value"},
                    {"output"},
                    {"timeout"},
                    {"json", Kind::flag},
                    {"prepare", Kind::flag},
                    {"slurm", Kind::flag},
                    {"slurm-option", Kind::values}}};
  for (const SweepFolderCommand& command : kSweepFolderCommands) {
    if (command.run != &run_one_trial) own.actions.emplace_back(command.name);  // which only a sweep itself calls
  }
  return own;
}

int run_sweep_tool(const std::vector<std::string>& arguments, int width) {
  Problems problems;
  const SweepArguments read = read_sweep_arguments(arguments, problems);
  if (read.help) return print_usage(sweep_usage(width));
  const std::string conclusion = "nothing was done. See levin sweep --help.";
  if (read.names.empty())
    problems.add({}, "levin sweep", "expected a sweep file, or status, best, report, ask, tell, wait.");
  if (!problems.empty()) return report_problems(problems, conclusion);
  if (const auto* command = find_sweep_folder_command(read.names[0])) {
    for (const Override& change : read.changes) problems.add({}, change.str(), "this command takes no overrides.");
    for (const auto& option : read.run_arguments) problems.add({}, cut_text(option), "unknown option.");
    if (!problems.empty()) return report_problems(problems, conclusion);
    if (read.names.size() != command->names) {
      problems.add(
          {}, std::string("levin sweep ") + command->name,
          command->names == 3 ? "expected a sweep's folder and a trial's number." : "expected a sweep's folder.");
      return report_problems(problems, conclusion);
    }
    SweepStore store(fs::absolute(read.names[1]).lexically_normal().string());
    return command->run(store, read);
  }
  if (read.names.size() > 1) {
    problems.add({}, "\"" + cut_text(read.names[1]) + "\"", "unexpected argument.");
    return report_problems(problems, conclusion);
  }
  return sweep_file(read, "levin sweep " + shell_command(arguments));
}

}  // namespace levin
