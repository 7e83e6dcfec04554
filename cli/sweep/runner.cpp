#include "levin/cli/sweep/runner.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <set>

#include "levin/cli/sweep/searcher.h"
#include "levin/cli/sweep/sweep_store.h"
#include "levin/cli/sweep/sweep_tables.h"
#include "levin/cli/sweep/trial_process.h"
#include "levin/cli/sweep/trial_result.h"
#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/main_guard.h"
#include "levin/core/process/stop_signal.h"
#include "levin/core/process/this_process.h"
#include "levin/strategies/launch/launcher_signals.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;

// The end of a trial is noticed at once, by its signal; what other processes add or end, after this time.
constexpr std::chrono::milliseconds kBetweenSweepLooks(200);
constexpr std::chrono::seconds kBetweenNotes(5);  // of the time that the sweep has run
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
  void take_value(const Trial& trial, const TrialOutcome& outcome, double now);
  void fail(const Trial& trial, const std::string& error, bool may_retry);
  void note_unlogged(const Trial& trial, const std::string& error);
  [[nodiscard]] std::vector<Trial> running_trials();
  void settle_ended();
  void end_overdue();
  [[nodiscard]] std::string time_limit_text() const;
  [[nodiscard]] std::optional<Clock::time_point> end_of_grace() const;
  [[nodiscard]] bool fill_slots();
  [[nodiscard]] bool begin_next(const std::vector<Trial>& trials);
  void start(int64_t id, int64_t slot);
  void wait();
  void stop_all(int signal_number, const std::string& reason);
  void pass_on(int signal_number);
  void kill_all(const std::string& reason);
  void show();
  void say(const Trial& trial, const std::string& what);
  [[nodiscard]] bool out_of_time() const;

  SweepStore& store_;
  std::string program_;
  int64_t only_;
  std::unique_ptr<Searcher> searcher_;
  LauncherSignals signals_;
  StopRequests stops_;
  int signal_number_ = 0;            // the first that asks to stop
  std::set<int64_t> children_ = {};  // process ids; other running trials were begun by an earlier sweep
  std::set<int64_t> killed_ = {};    // process ids of trials that were killed as the sweep stops
  // Trials that have reached max_trial_time, and when they are killed; unset: never.
  std::map<int64_t, std::optional<Clock::time_point>> overdue_ = {};
  int64_t failures_in_a_row_ = 0;
  std::string last_problem_ = "";
  std::string unlogged_ = "";  // no trial can be ranked: why
  bool stopping_ = false;
  double elapsed_before_ = 0;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point noted_ = begin_;
  double elapsed_ = 0;
};

bool Runner::out_of_time() const {
  return store_.options().max_time && elapsed_ >= store_.options().max_time->count();
}

// Trials that were running when an earlier sweep died: live processes continue, the others have a result or restart.
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

// If no trial has a value yet, the metric's name is wrong, and no other trial could be ranked either. The trial waits
// then: with the right name its value is read from what it has logged. Otherwise only this trial has none.
void Runner::note_unlogged(const Trial& trial, const std::string& error) {
  if (any_has_value(store_.trials())) return fail(trial, error, /*may_retry=*/false);
  unlogged_ = "trial " + std::to_string(trial.id) + ": " + error;
  store_.put_back(trial.id, seconds_since_1970());
}

// When a trial ended that an earlier sweep had started: when it last wrote to its output.
double last_sign_of_life(const Trial& trial, const std::string& output) {
  std::error_code code;
  const auto written = fs::last_write_time(output, code);
  if (code) return trial.launched;
  const auto ago = fs::file_time_type::clock::now() - written;
  return seconds_since_1970() - std::chrono::duration<double>(ago).count();
}

std::string Runner::time_limit_text() const {
  return readable_duration(*store_.options().max_trial_time) + " (max_trial_time)";
}

void Runner::take_value(const Trial& trial, const TrialOutcome& outcome, double now) {
  const bool higher = trial.target > 0 && trial.target < store_.plan().max_resource;
  store_.record_result(trial.id, {trial.target, outcome.value, outcome.checkpoint, outcome.checkpoint_step},
                       outcome.finished, higher, now);
  failures_in_a_row_ = 0;
  if (Console::instance().is_terminal()) return;
  const std::string what = store_.options().metric + " " + short_number(outcome.value);
  const std::string unit = store_.options().search.resource == Resource::epochs ? "epoch" : "step";
  say(trial, trial.target > 0 ? what + " after " + count_of(trial.target, unit) : what);
}

void Runner::settle(const Trial& trial, std::optional<int> status) {
  const bool overdue = overdue_.erase(trial.id) > 0;
  const std::string output = (fs::path(store_.trial_folder(trial.id)) / "output.log").string();
  const double now = status ? seconds_since_1970() : last_sign_of_life(trial, output);
  const TrialOutcome outcome = read_outcome(store_, trial, /*ends=*/overdue);
  switch (outcome.kind) {
    case TrialOutcome::Kind::value: return take_value(trial, outcome, now);
    case TrialOutcome::Kind::stopped: return store_.put_back(trial.id, now);
    case TrialOutcome::Kind::failed: return fail(trial, outcome.error, /*may_retry=*/!overdue);
    case TrialOutcome::Kind::unlogged:
      if (!overdue) return note_unlogged(trial, outcome.error);
      return fail(trial, "it was stopped after " + time_limit_text() + ": " + outcome.error, /*may_retry=*/false);
    case TrialOutcome::Kind::lost: break;
  }
  if (overdue && !stopping_) {
    return fail(trial, "it has no result after " + time_limit_text() + "; its output is in " + output,
                /*may_retry=*/false);
  }
  const bool by_stop_signal =
      status && (*status == kExitInterrupted || *status == kExitTerminated || *status == kExitHangup);
  for (int k = 0; by_stop_signal && signal_number_ == 0 && k < 3; ++k)
    wait();  // it may be on its way to this process too
  if (!status || stopping_ || (by_stop_signal && signal_number_ != 0)) return store_.put_back(trial.id, now);
  std::string error;
  for (const auto& line : last_lines(output, kErrorLines)) error += line + "\n";
  if (*status > 128 && !by_stop_signal) error += "killed by signal " + std::to_string(*status - 128) + "\n";
  error += "exit status " + std::to_string(*status) + "; its output is in " + output;
  fail(trial, error, *status != kExitBadConfig);
}

// Those that this runner is for.
std::vector<Trial> Runner::running_trials() {
  std::vector<Trial> trials;
  for (const Trial& trial : store_.trials()) {
    const bool is_mine = only_ < 0 || trial.id == only_;
    if (trial.state == TrialState::running && is_mine) trials.push_back(trial);
  }
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

std::optional<Clock::time_point> Runner::end_of_grace() const {
  const double grace = store_.plan().stop_grace.count();
  if (grace <= 0) return std::nullopt;
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds(std::min(grace, 1e9)));
}

// Stops trials that have run for max_trial_time, and kills them if they do not end.
void Runner::end_overdue() {
  const auto& limit = store_.options().max_trial_time;
  if (!limit) return;
  const double now = seconds_since_1970();
  for (const Trial& trial : running_trials()) {
    if (trial.pid <= 0 || trial.ran + now - trial.launched < limit->count()) continue;
    const auto [known, is_new] = overdue_.try_emplace(trial.id, end_of_grace());
    if (is_new) {
      say(trial, "is stopped after " + time_limit_text());
      ::kill(static_cast<pid_t>(trial.pid), SIGTERM);
    } else if (known->second && Clock::now() >= *known->second) {
      kill_trial(trial.pid);
    }
  }
}

void Runner::start(int64_t id, int64_t slot) {
  if (!store_.take(id, slot, seconds_since_1970())) return;
  const Trial trial = store_.trial(id);
  make_folder(store_.trial_folder(id));
  const int64_t pid =
      start_trial(trial_command(store_, program_, trial, only_ >= 0),
                  [&](int64_t process, const std::string& name) { store_.set_process(id, process, name); });
  children_.insert(pid);
}

// Makes a trial wait for a slot; false if there is nothing to do now.
bool Runner::begin_next(const std::vector<Trial>& trials) {
  const SearchStep step = searcher_->next(trials);
  switch (step.kind) {
    case SearchStep::Kind::begin: {
      const auto number = std::ssize(trials);  // another process may have added a trial meanwhile: decide again
      (void)store_.add([&](int64_t id) {
        return id == number ? std::optional(SweepStore::NewTrial{step.parameters, step.target, step.bracket})
                            : std::nullopt;
      });
      return true;
    }
    case SearchStep::Kind::continue_: {
      const Trial& trial = trials[static_cast<size_t>(step.trial)];
      if (!trial.finished) {
        store_.go_on(step.trial, step.target);
      } else {  // it has ended by itself, so more resources change nothing
        RungResult same = trial.rungs.back();
        same.resource = step.target;
        store_.record_result(step.trial, same, true, step.target < store_.plan().max_resource, seconds_since_1970());
      }
      return true;
    }
    default: return false;
  }
}

// False if nothing runs and nothing is left to do.
bool Runner::fill_slots() {
  while (true) {
    const std::vector<Trial>& trials = store_.trials();
    std::set<int64_t> used;
    std::optional<int64_t> waiting;
    for (const Trial& trial : trials) {
      if (only_ >= 0 && trial.id != only_) continue;
      if (trial.state == TrialState::running) used.insert(trial.slot);
      if (trial.state == TrialState::waiting && !waiting) waiting = trial.id;
    }
    const bool ends = out_of_time() || failures_in_a_row_ >= store_.options().max_failures;
    const int64_t slots = only_ >= 0 ? 1 : store_.options().slots;
    if (ends || std::ssize(used) >= slots) return !used.empty();
    if (waiting) {
      int64_t slot = 0;
      while (used.contains(slot)) ++slot;
      start(*waiting, slot);
      continue;
    }
    if (only_ >= 0) return !used.empty();
    if (!begin_next(trials)) return !used.empty() || searcher_->next(trials).kind != SearchStep::Kind::finished;
  }
}

void Runner::wait() {
  const auto number = signals_.wait(kBetweenSweepLooks);
  if (number && *number != SIGCHLD) pass_on(*number);
}

// To the running trials: once for every signal; one that is repeated kills them.
void Runner::pass_on(int signal_number) {
  if (signal_number_ == 0) signal_number_ = signal_number;
  const StopRequests::Kind kind = stops_.note(signal_number);
  if (kind == StopRequests::Kind::again && signal_number != SIGUSR1) {  // a scheduler repeats its warning
    return kill_all(stop_signal_name(signal_number) + " came again");
  }
  if (kind != StopRequests::Kind::first) return;
  for (const Trial& trial : running_trials()) {
    if (is_alive(trial.pid, trial.process)) ::kill(static_cast<pid_t>(trial.pid), signal_number);
  }
}

void Runner::kill_all(const std::string& reason) {
  for (const Trial& trial : running_trials()) {
    if (!children_.contains(trial.pid) && !is_alive(trial.pid, trial.process)) continue;
    if (!killed_.insert(trial.pid).second) continue;
    say(trial, "is killed, as " + reason + "; it continues from its last checkpoint");
    kill_trial(trial.pid);
  }
}

// Returns when no trial runs. Trials that do not end within stop_grace are killed.
void Runner::stop_all(int signal_number, const std::string& reason) {
  stopping_ = true;
  if (!running_trials().empty()) {
    Console::instance().print("Stopping the running trials at a checkpoint (" + reason + ") …");
  }
  if (signal_number_ == 0) pass_on(signal_number);  // otherwise it has been passed on
  auto deadline = end_of_grace();
  for (settle_ended(); !running_trials().empty(); settle_ended()) {
    wait();
    if (!deadline || Clock::now() < *deadline) continue;
    kill_all("it has not stopped within " + readable_duration(store_.plan().stop_grace) + " (trainer.stop_grace)");
    deadline.reset();
  }
}

void Runner::show() {
  const auto now = Clock::now();
  elapsed_ = elapsed_before_ + std::chrono::duration<double>(now - begin_).count();
  if (only_ < 0 && now - noted_ >= kBetweenNotes) {
    noted_ = now;
    store_.set_elapsed(elapsed_);
  }
  if (!Console::instance().is_terminal()) return;
  Console::instance().live(progress_text(store_, store_.trials(), searcher_->total(), elapsed_));
}

SweepResult Runner::run() {
  std::optional<SweepLock> lock;
  if (only_ < 0) lock.emplace(store_.folder());
  elapsed_ = elapsed_before_ = store_.elapsed();
  recover();
  SweepResult result;
  while (true) {
    if (signal_number_ != 0) {
      stop_all(signal_number_, stop_signal_name(signal_number_));
      result = {SweepEnd::stopped, signal_number_, ""};
      break;
    }
    settle_ended();
    if (!unlogged_.empty()) {
      stop_all(SIGTERM, "the metric is not logged");
      result = {SweepEnd::unlogged_metric, 0, unlogged_};
      break;
    }
    if (signal_number_ != 0) continue;  // no trial starts any more
    end_overdue();
    if (!fill_slots()) {
      if (failures_in_a_row_ >= store_.options().max_failures) {
        result = {SweepEnd::too_many_failures, 0, last_problem_};
      } else if (out_of_time() && searcher_->next(store_.trials()).kind != SearchStep::Kind::finished) {
        result.end = SweepEnd::out_of_time;
      }
      break;
    }
    show();
    wait();
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
