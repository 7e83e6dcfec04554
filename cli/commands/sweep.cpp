#include "levin/cli/commands/sweep.h"

#include <array>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "levin/cli/commands/command_words.h"
#include "levin/cli/commands/help_text.h"
#include "levin/cli/commands/report.h"
#include "levin/cli/commands/submit_script.h"
#include "levin/cli/commands/sweep_setup.h"
#include "levin/cli/sweep/make_searcher.h"
#include "levin/cli/sweep/runner.h"
#include "levin/cli/sweep/sweep_report.h"
#include "levin/cli/sweep/sweep_tables.h"
#include "levin/core/console.h"
#include "levin/core/count_of.h"
#include "levin/core/exit_codes.h"
#include "levin/core/files.h"
#include "levin/core/run_command.h"
#include "levin/core/wall_clock.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

using nlohmann::json;

constexpr std::array kSweepHelp{
    std::pair{"FILE [--folder FOLDER]",
              "run the sweep of this file, or go on with it; the folder is named like the file"},
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

struct SweepWords {
  std::vector<std::string> names = {};  // what is no option
  std::string folder = "", params = "", value = "", output = "", timeout = "";
  bool json = false, prepare = false, slurm = false;
  std::vector<std::pair<std::string, std::string>> slurm_options = {};
};

SweepWords read_words(std::vector<std::string> words, bool& help, Problems& problems) {
  SweepWords read;
  for (size_t k = 0; k < words.size();) {  // repeated, so read here
    const std::string option = "--slurm-option";
    const bool joined = words[k].starts_with(option + "=");
    if (words[k] != option && !joined) {
      ++k;
      continue;
    }
    const bool has_value = joined || k + 1 < words.size();
    const std::string text = joined ? words[k].substr(option.size() + 1) : has_value ? words[k + 1] : "";
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      problems.add({}, option, "expected NAME=VALUE, got \"" + cut_text(text) + "\".");
    } else {
      read.slurm_options.emplace_back(text.substr(0, equals), text.substr(equals + 1));
    }
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(k),
                words.begin() + static_cast<std::ptrdiff_t>(k + (joined || !has_value ? 1 : 2)));
  }
  const std::vector<std::string> known{"folder", "params", "value", "output", "timeout", "json", "prepare", "slurm"};
  const CommandWords given = read_command_words(words, known, {"json", "prepare", "slurm"}, problems);
  const auto text = [&](const char* name) {
    const ConfigNode* node = given.options.find(name);
    return node == nullptr ? std::string() : node->text;
  };
  read.names = given.run;
  read.folder = text("folder");
  read.params = text("params");
  read.value = text("value");
  read.output = text("output");
  read.timeout = text("timeout");
  read.json = text("json") == "true";
  read.prepare = text("prepare") == "true";
  read.slurm = text("slurm") == "true";
  help = given.help;
  for (const auto& name : read.names) {
    if (name.starts_with("--"))
      problems.add({}, cut_text(name), "unknown option." + did_you_mean(name.substr(2), known));
  }
  return read;
}

std::string this_program() {
  return fs::read_symlink("/proc/self/exe").string();
}

SweepStore open_store(const std::string& folder) {
  return SweepStore(fs::absolute(folder).lexically_normal().string());
}

// ---- run ------------------------------------------------------------------------------------------------------------

int report_end(SweepStore& store, const SweepResult& result, const std::string& again) {
  Console& console = Console::instance();
  const auto trials = store.trials();
  const auto searcher = make_searcher(store.options(), store.space(), store.plan().max_resource);
  console.print(progress_text(store, trials, searcher->total(), store.elapsed()));
  switch (result.end) {
    case SweepEnd::stopped:
      console.error("the sweep was stopped; its trials are at checkpoints. Continue by: " + again);
      return 128 + result.signal_number;
    case SweepEnd::too_many_failures:
      console.error("the sweep ends after " + count_of(store.options().max_failures, "failed trial") +
                    " in a row (max_failures). The last one: " + result.problem + "\nContinue by: " + again);
      return kExitRunFailed;
    case SweepEnd::out_of_time:
      console.print("The sweep ends because its time is over (max_time). With a longer one, continue by: " + again);
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

int submit_to_slurm(SweepStore& store, const SweepWords& words) {
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
  for (int64_t id = std::ssize(store.trials()); id < total; ++id) {
    store.add(parameters_of(store.options(), store.space(), id));
  }
  SubmitJob job;
  job.name = store.plan().name;
  job.folder = store.plan().working_folder;
  job.output = (fs::path(store.folder()) / "slurm-%a.out").string();
  job.gpus_per_node = store.options().gpus_per_slot;
  job.slurm = words.slurm_options;
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
  const std::string script = (fs::path(store.folder()) / "sweep.sbatch").string();
  write_file_durably(script, job_script(job));
  const CommandResult result = run_command({"sbatch", script});
  const std::string said = result.output.substr(0, result.output.find_last_not_of('\n') + 1);
  if (result.status != 0) {
    console.error("sweep: sbatch refuses " + script + ": " + said);
    return kExitRunFailed;
  }
  console.print(said + " (" + script + ")");
  return kExitOk;
}

int sweep_file(const SweepWords& words, const std::string& again) {
  Problems problems;
  const auto store = open_sweep(words.names[0], words.folder, problems);
  if (!problems.empty()) {
    return report_problems(problems, count_of(static_cast<int64_t>(problems.size()), "problem") +
                                         "; nothing was run. See levin sweep --help.");
  }
  if (words.prepare) {
    Console::instance().print("The sweep is prepared in " + store->folder() + ".");
    return kExitOk;
  }
  if (words.slurm) return submit_to_slurm(*store, words);
  Console::instance().print("The sweep is in " + store->folder() + ".");
  const SweepResult result = run_sweep(*store, this_program());
  return report_end(*store, result, again);
}

// ---- what works on a folder -----------------------------------------------------------------------------------------

int64_t trial_number(const std::string& text) {
  int64_t id = -1;
  if (!detail::parse_int(ConfigNode::scalar(text), id)) {
    throw ConfigError("levin sweep: expected a trial's number, got \"" + cut_text(text) + "\".");
  }
  return id;
}

int ask(SweepStore& store, const SweepWords& words) {
  const int64_t count = std::ssize(store.trials());
  Parameters parameters;
  if (words.params.empty()) {
    parameters = parameters_of(store.options(), store.space(), count);
  } else {
    Problems problems;
    parameters = read_parameters(words.params, store.space(), problems);
    if (!problems.empty()) return report_problems(problems, "no trial was added.");
  }
  if (store.options().max_trials && count >= *store.options().max_trials) {
    Console::instance().error("sweep: all " + count_of(*store.options().max_trials, "trial") +
                              " were asked for (max_trials). Raise it in the sweep file and call levin sweep again.");
    return kExitRunFailed;
  }
  const int64_t id = store.add(parameters);
  const Trial trial = store.trial(id);
  Console::instance().print(words.json ? trial_json(store, trial).dump()
                                       : "trial " + std::to_string(id) + ": " + parameters_text(trial.parameters));
  return kExitOk;
}

int tell(SweepStore& store, const SweepWords& words) {
  const int64_t id = trial_number(words.names[2]);
  double value = 0;
  if (!detail::parse_double(ConfigNode::scalar(words.value), value)) {
    throw ConfigError("levin sweep tell: --value: expected a number, got \"" + cut_text(words.value) + "\".");
  }
  const Trial trial = store.trial(id);
  if (store.tell(id, value, seconds_since_1970())) return kExitOk;
  Console::instance().error("sweep: trial " + std::to_string(id) + " is " + word(trial.state) +
                            ", and only one that waits and was never started takes a value from outside.");
  return kExitRunFailed;
}

int wait_for(SweepStore& store, const SweepWords& words) {
  const int64_t id = trial_number(words.names[2]);
  double most = 1e18;
  if (!words.timeout.empty() && !detail::parse_double(ConfigNode::scalar(words.timeout), most)) {
    throw ConfigError("levin sweep wait: --timeout: expected seconds, got \"" + cut_text(words.timeout) + "\".");
  }
  const auto begin = std::chrono::steady_clock::now();
  while (true) {
    const Trial trial = store.trial(id);
    const bool completed = trial.state == TrialState::completed;
    if (completed || trial.state == TrialState::failed) {
      Console::instance().print(words.json  ? trial_json(store, trial).dump()
                                : completed ? number_text(*trial.value())
                                            : "failed: " + trial.error);
      return completed ? kExitOk : kExitRunFailed;
    }
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() >= most) {
      Console::instance().error("sweep: trial " + std::to_string(id) + " is still " + word(trial.state) + " after " +
                                words.timeout + " s. Is levin sweep running?");
      return kExitRunFailed;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

int best(SweepStore& store, const SweepWords& words) {
  const auto trials = store.trials();
  const Trial* found = best_trial(trials, store.higher_is_better());
  if (found == nullptr) {
    Console::instance().error("sweep: no trial in " + store.folder() + " has a value yet.");
    return kExitRunFailed;
  }
  Console::instance().print(words.json ? trial_json(store, *found).dump() : best_text(store, trials));
  return kExitOk;
}

int report(SweepStore& store, const SweepWords& words) {
  const std::string file = words.output.empty() ? (fs::path(store.folder()) / "report.html").string() : words.output;
  write_file_durably(file, sweep_html(store, store.trials()));
  Console::instance().print(file);
  return kExitOk;
}

int run_one_trial(SweepStore& store, const SweepWords& words) {
  const int64_t id = trial_number(words.names[2]);
  (void)store.trial(id);
  const SweepResult result = run_sweep(store, this_program(), id);
  if (result.end == SweepEnd::stopped) return 128 + result.signal_number;
  const Trial trial = store.trial(id);
  if (trial.state == TrialState::completed) return kExitOk;
  Console::instance().error("trial " + std::to_string(id) + ": " + trial.error);
  return kExitRunFailed;
}

int status(SweepStore& store, const SweepWords& words) {
  const auto trials = store.trials();
  const auto searcher = make_searcher(store.options(), store.space(), store.plan().max_resource);
  Console::instance().print(words.json ? status_json(store, trials, searcher->total()).dump()
                                       : status_text(store, trials, searcher->total()));
  return kExitOk;
}

struct FolderCommand {
  const char* word;
  size_t names;  // with the word itself
  int (*run)(SweepStore&, const SweepWords&);
};
constexpr std::array kFolderCommands{FolderCommand{"status", 2, status},      FolderCommand{"best", 2, best},
                                     FolderCommand{"report", 2, report},      FolderCommand{"ask", 2, ask},
                                     FolderCommand{"tell", 3, tell},          FolderCommand{"wait", 3, wait_for},
                                     FolderCommand{"trial", 3, run_one_trial}};

}  // namespace

std::string sweep_usage(int width) {
  std::string out = "levin sweep …\n\n";
  for (const auto& [words, doc] : kSweepHelp) out += std::string("  ") + words + "\n" + wrapped(doc, width, 6);
  out += "\n" + wrapped("Keys of the file:", width);
  for (const auto& option : describe_options<SweepOptions>()) {
    if (option.name != "search") out += "  " + option.name + "\n" + wrapped(option.doc, width, 6);
  }
  for (const auto& option : describe_options<SearchOptions>()) {
    out += "  search." + option.name + "\n" + wrapped(option.doc, width, 6);
  }
  return out;
}

int run_sweep_tool(const std::vector<std::string>& words, int width) {
  Problems problems;
  bool help = false;
  const SweepWords read = read_words(words, help, problems);
  if (help) {
    Console::instance().print(sweep_usage(width));
    return kExitOk;
  }
  const std::string conclusion = "nothing was done. See levin sweep --help.";
  if (read.names.empty())
    problems.add({}, "levin sweep", "expected a sweep file, or status, best, report, ask, tell, wait.");
  if (!problems.empty()) return report_problems(problems, conclusion);
  for (const auto& command : kFolderCommands) {
    if (read.names[0] != command.word) continue;
    if (read.names.size() != command.names) {
      problems.add(
          {}, std::string("levin sweep ") + command.word,
          command.names == 3 ? "expected a sweep's folder and a trial's number." : "expected a sweep's folder.");
      return report_problems(problems, conclusion);
    }
    SweepStore store = open_store(read.names[1]);
    return command.run(store, read);
  }
  if (read.names.size() > 1) {
    problems.add({}, "\"" + cut_text(read.names[1]) + "\"", "unexpected argument.");
    return report_problems(problems, conclusion);
  }
  std::string again = "levin sweep";
  for (const auto& each : words) again += " " + shell_word(each);
  return sweep_file(read, again);
}

}  // namespace levin
