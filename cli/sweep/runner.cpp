#include "levin/cli/sweep/runner.h"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <set>
#include <thread>

#include "levin/cli/sweep/make_searcher.h"
#include "levin/cli/sweep/sweep_lock.h"
#include "levin/cli/sweep/sweep_tables.h"
#include "levin/cli/sweep/trial_command.h"
#include "levin/cli/sweep/trial_process.h"
#include "levin/cli/sweep/trial_result.h"
#include "levin/core/console.h"
#include "levin/core/count_of.h"
#include "levin/core/error.h"
#include "levin/core/exit_codes.h"
#include "levin/core/files.h"
#include "levin/core/short_number.h"
#include "levin/core/stop_signal.h"
#include "levin/core/wall_clock.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

constexpr std::chrono::milliseconds kBetweenSweepLooks(30);
constexpr size_t kErrorLines = 8;

class Runner {
 public:
  Runner(SweepStore& store, std::string program, int64_t only)
      : store_(store),
        program_(std::move(program)),
        only_(only),
        searcher_(make_searcher(store.options(), store.space(), store.plan().max_resource)) {}

  SweepResult run();

 private:
  void recover();
  void settle(const Trial& trial, std::optional<int> status);
  void fail(const Trial& trial, const std::string& error, bool may_retry);
  void note_unlogged(const Trial& trial, const std::string& error);
  [[nodiscard]] std::vector<Trial> running_trials();
  void settle_ended();
  [[nodiscard]] bool fill_slots();
  [[nodiscard]] bool begin_next(const std::vector<Trial>& trials);
  void start(const Trial& waiting, int64_t slot);
  void stop_all(const std::string& reason);
  void show();
  void say(const Trial& trial, const std::string& what);
  [[nodiscard]] bool out_of_time() const;

  SweepStore& store_;
  std::string program_;
  int64_t only_;
  std::unique_ptr<Searcher> searcher_;
  std::set<int64_t> children_ = {};  // process ids; other running trials were begun by an earlier sweep
  int64_t failures_in_a_row_ = 0;
  std::string last_problem_ = "";
  std::string unlogged_ = "";  // no trial can be ranked: why
  bool stopping_ = false;
  double elapsed_before_ = 0;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point noted_ = begin_;
  double elapsed_ = 0;
};

bool Runner::out_of_time() const {
  return store_.options().max_time && elapsed_ >= store_.options().max_time->count();
}

// Trials that were running when an earlier sweep died: those that live go on, the others have a result or start again.
void Runner::recover() {
  for (const Trial& trial : running_trials()) {
    if (is_alive(trial.pid, trial.process)) {
      Console::instance().print("trial " + std::to_string(trial.id) + " is still running: process " +
                                std::to_string(trial.pid) + ".");
      continue;
    }
    settle(trial, std::nullopt);
  }
}

void Runner::say(const Trial& trial, const std::string& what) {
  Console::instance().print("trial " + std::to_string(trial.id) + ": " + what + " (" +
                            parameters_text(trial.parameters) + ")");
}

void Runner::fail(const Trial& trial, const std::string& error, bool may_retry) {
  const bool again = may_retry && trial.failures < store_.options().max_retries;
  store_.record_failure(trial.id, error, again, seconds_since_1970());
  const std::string first = error.substr(0, error.find('\n'));
  say(trial, again ? "failed and starts again: " + first : "failed: " + first);
  if (again) return;
  ++failures_in_a_row_;
  last_problem_ = error;
}

// If no trial has a value yet, the metric's name is wrong, and the others would train in vain. The trial waits then:
// with the right name its value is read from what it has logged. Otherwise only this trial has none.
void Runner::note_unlogged(const Trial& trial, const std::string& error) {
  if (any_has_value(store_.trials())) return fail(trial, error, /*may_retry=*/false);
  unlogged_ = "trial " + std::to_string(trial.id) + ": " + error;
  store_.put_back(trial.id);
}

void Runner::settle(const Trial& trial, std::optional<int> status) {
  const TrialOutcome outcome = read_outcome(store_, trial);
  switch (outcome.kind) {
    case TrialOutcome::Kind::value: {
      const bool higher = trial.target > 0 && trial.target < store_.plan().max_resource;
      store_.record_result(trial.id, {trial.target, outcome.value}, outcome.finished, higher, seconds_since_1970());
      failures_in_a_row_ = 0;
      if (Console::instance().is_terminal()) return;
      const std::string what = store_.options().metric + " " + short_number(outcome.value);
      const std::string unit = store_.options().search.resource == Resource::epochs ? "epoch" : "step";
      return say(trial, trial.target > 0 ? what + " after " + count_of(trial.target, unit) : what);
    }
    case TrialOutcome::Kind::stopped: return store_.put_back(trial.id);
    case TrialOutcome::Kind::failed: return fail(trial, outcome.error, /*may_retry=*/true);
    case TrialOutcome::Kind::unlogged: return note_unlogged(trial, outcome.error);
    case TrialOutcome::Kind::lost: break;
  }
  if (!status) return store_.put_back(trial.id);
  const bool stopped_early = *status == kExitInterrupted || *status == kExitTerminated || *status == kExitHangup;
  if (stopped_early && (stopping_ || stop_signal() != 0)) return store_.put_back(trial.id);  // before its first batch
  const std::string output = (fs::path(store_.trial_folder(trial.id)) / "output.log").string();
  std::string error;
  for (const auto& line : last_lines(output, kErrorLines)) error += line + "\n";
  if (*status > 128 && !stopped_early) error += "killed by signal " + std::to_string(*status - 128) + "\n";
  error += "exit status " + std::to_string(*status) + "; its output is in " + output;
  fail(trial, error, *status != kExitBadConfig);
}

// Those that this runner is for.
std::vector<Trial> Runner::running_trials() {
  std::vector<Trial> trials = store_.trials();
  std::erase_if(trials, [&](const Trial& trial) {
    return trial.state != TrialState::running || (only_ >= 0 && trial.id != only_);
  });
  return trials;
}

void Runner::settle_ended() {
  for (const Trial& trial : running_trials()) {
    if (children_.contains(trial.pid)) {
      const auto status = ended_child(trial.pid);
      if (!status) continue;
      children_.erase(trial.pid);
      settle(trial, status);
    } else if (!is_alive(trial.pid, trial.process)) {
      settle(trial, std::nullopt);
    }
  }
}

void Runner::start(const Trial& waiting, int64_t slot) {
  if (!store_.take(waiting.id, slot, seconds_since_1970())) return;
  const Trial trial = store_.trial(waiting.id);
  make_folder(store_.trial_folder(trial.id));
  const int64_t pid = start_trial(trial_command(store_, program_, trial, only_ >= 0),
                                  [&](int64_t id, const std::string& name) { store_.set_process(trial.id, id, name); });
  children_.insert(pid);
}

// Makes a trial wait for a slot; false if there is nothing to do now.
bool Runner::begin_next(const std::vector<Trial>& trials) {
  const SearchStep step = searcher_->next(trials);
  switch (step.kind) {
    case SearchStep::Kind::begin: store_.add(step.parameters, step.target, step.bracket); return true;
    case SearchStep::Kind::continue_: {
      const Trial& trial = trials[static_cast<size_t>(step.trial)];
      if (!trial.finished) {
        store_.go_on(step.trial, step.target);
      } else {  // it has ended by itself, so more resources change nothing
        store_.record_result(step.trial, {step.target, *trial.value()}, true, step.target < store_.plan().max_resource,
                             seconds_since_1970());
      }
      return true;
    }
    default: return false;
  }
}

// False if nothing runs and nothing is left to do.
bool Runner::fill_slots() {
  while (true) {
    const std::vector<Trial> trials = store_.trials();
    std::set<int64_t> used;
    const Trial* waiting = nullptr;
    for (const Trial& trial : trials) {
      if (only_ >= 0 && trial.id != only_) continue;
      if (trial.state == TrialState::running) used.insert(trial.slot);
      if (trial.state == TrialState::waiting && waiting == nullptr) waiting = &trial;
    }
    const bool ends = out_of_time() || failures_in_a_row_ >= store_.options().max_failures;
    const int64_t slots = only_ >= 0 ? 1 : store_.options().slots;
    if (ends || std::ssize(used) >= slots) return !used.empty();
    if (waiting != nullptr) {
      int64_t slot = 0;
      while (used.contains(slot)) ++slot;
      start(*waiting, slot);
      continue;
    }
    if (only_ >= 0) return !used.empty();
    if (!begin_next(trials)) return !used.empty() || searcher_->next(trials).kind != SearchStep::Kind::finished;
  }
}

void Runner::stop_all(const std::string& reason) {
  stopping_ = true;
  std::vector<Trial> running = running_trials();
  if (!running.empty()) {
    Console::instance().print("Stopping the running trials at a checkpoint (" + reason + ") …");
  }
  for (const Trial& trial : running) {
    if (is_alive(trial.pid, trial.process)) ::kill(static_cast<pid_t>(trial.pid), SIGINT);
  }
  while (!running.empty()) {
    settle_ended();
    running = running_trials();
    if (!running.empty()) std::this_thread::sleep_for(kBetweenSweepLooks);
  }
}

void Runner::show() {
  const auto now = std::chrono::steady_clock::now();
  elapsed_ = elapsed_before_ + std::chrono::duration<double>(now - begin_).count();
  if (now - noted_ < std::chrono::seconds(1)) return;
  noted_ = now;
  if (only_ < 0) store_.set_elapsed(elapsed_);
  if (!Console::instance().is_terminal()) return;
  Console::instance().live(progress_text(store_, store_.trials(), searcher_->total(), elapsed_));
}

SweepResult Runner::run() {
  std::optional<SweepLock> lock;
  if (only_ < 0) lock.emplace(store_.folder());
  const StopSignalScope signals;
  elapsed_before_ = store_.elapsed();
  recover();
  SweepResult result;
  while (true) {
    if (const int number = stop_signal(); number != 0) {
      stop_all(stop_signal_name(number));
      result = {SweepEnd::stopped, number, ""};
      break;
    }
    settle_ended();
    if (!unlogged_.empty()) {
      stop_all("the metric is not logged");
      result = {SweepEnd::unlogged_metric, 0, unlogged_};
      break;
    }
    if (!fill_slots()) {
      if (failures_in_a_row_ >= store_.options().max_failures) {
        result = {SweepEnd::too_many_failures, 0, last_problem_};
      } else if (out_of_time() && searcher_->next(store_.trials()).kind != SearchStep::Kind::finished) {
        result.end = SweepEnd::out_of_time;
      }
      break;
    }
    show();
    std::this_thread::sleep_for(kBetweenSweepLooks);
  }
  Console::instance().live("");
  if (only_ < 0) store_.set_elapsed(elapsed_);
  return result;
}

}  // namespace

SweepResult run_sweep(SweepStore& store, const std::string& program, int64_t only) {
  return Runner(store, program, only).run();
}

}  // namespace levin
