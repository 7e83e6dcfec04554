#include "levin/cli/commands/sweep_folder.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "levin/cli/commands/report.h"
#include "levin/cli/sweep/make_searcher.h"
#include "levin/cli/sweep/runner.h"
#include "levin/cli/sweep/sweep_report.h"
#include "levin/cli/sweep/sweep_tables.h"
#include "levin/core/console.h"
#include "levin/core/count_of.h"
#include "levin/core/exit_codes.h"
#include "levin/core/files.h"
#include "levin/core/wall_clock.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

int64_t trial_number(const std::string& text) {
  int64_t id = -1;
  if (!detail::parse_int(ConfigNode::scalar(text), id)) {
    throw ConfigError("levin sweep: expected a trial's number, got \"" + cut_text(text) + "\".");
  }
  return id;
}

int ask(SweepStore& store, const SweepWords& words) {
  Parameters chosen;
  if (!words.params.empty()) {
    Problems problems;
    chosen = read_parameters(words.params, store.space(), problems);
    if (!problems.empty()) return report_problems(problems, "no trial was added.");
  }
  const auto& most = store.options().max_trials;
  const auto id = store.add([&](int64_t count) -> std::optional<SweepStore::NewTrial> {
    if (most && count >= *most) return std::nullopt;
    return SweepStore::NewTrial{words.params.empty() ? parameters_of(store.options(), store.space(), count) : chosen};
  });
  if (!id) {
    Console::instance().error("sweep: all " + count_of(*most, "trial") +
                              " were asked for (max_trials). Raise it in the sweep file and call levin sweep again.");
    return kExitRunFailed;
  }
  const Trial trial = store.trial(*id);
  Console::instance().print(words.json ? trial_json(store, trial).dump()
                                       : "trial " + std::to_string(*id) + ": " + parameters_text(trial.parameters));
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
  const std::string page = sweep_html(store, store.trials());
  const bool is_named = !words.output.empty();
  const std::string file = is_named ? words.output : (fs::path(store.folder()) / "report.html").string();
  is_named ? write_output(file, page) : void(write_file_durably(file, page));
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

constexpr std::array kSweepFolderCommands{
    SweepFolderCommand{"status", 2, status},      SweepFolderCommand{"best", 2, best},
    SweepFolderCommand{"report", 2, report},      SweepFolderCommand{"ask", 2, ask},
    SweepFolderCommand{"tell", 3, tell},          SweepFolderCommand{"wait", 3, wait_for},
    SweepFolderCommand{"trial", 3, run_one_trial}};

}  // namespace

std::string this_program() {
  return fs::read_symlink("/proc/self/exe").string();
}

const SweepFolderCommand* find_sweep_folder_command(const std::string& word) {
  const auto found = std::find_if(kSweepFolderCommands.begin(), kSweepFolderCommands.end(),
                                  [&](const SweepFolderCommand& command) { return command.word == word; });
  return found == kSweepFolderCommands.end() ? nullptr : &*found;
}

}  // namespace levin
