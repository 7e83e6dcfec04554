#include "levin/cli/sweep/sweep_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "levin/cli/runs/run_alive.h"
#include "levin/core/files/files.h"
#include "levin/core/options/config_node.h"
#include "levin/core/options/error.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

std::string lock_file(const std::string& folder) {
  return folder + "/sweep.lock";
}

int open_lock(const std::string& path) {
  const int fd = open_regular_file(path, O_RDWR | O_CREAT);
  if (fd < 0) throw Error("sweep: cannot write " + path + ": " + system_error_text(errno) + ".");
  return fd;
}

// A child that has not begun its program yet holds a copy of the lock for a moment.
bool lock_within_a_second(int fd) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
    ::usleep(50'000);
  }
  return false;
}

constexpr const char* kFormat = "2";
constexpr const char* kFirstFormat = "1";  // without kNewColumns

// Several processes may use one sweep: each waits this long for another.
constexpr Seconds kStorePatience{30};

constexpr const char* kSchema = R"(
CREATE TABLE sweep (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE trials (
  id INTEGER PRIMARY KEY, state TEXT NOT NULL, bracket INTEGER NOT NULL, target INTEGER NOT NULL,
  finished INTEGER NOT NULL DEFAULT 0, slot INTEGER NOT NULL DEFAULT 0, launches INTEGER NOT NULL DEFAULT 0,
  failures INTEGER NOT NULL DEFAULT 0, error TEXT NOT NULL DEFAULT '', pid INTEGER NOT NULL DEFAULT 0,
  process TEXT NOT NULL DEFAULT '', started REAL NOT NULL DEFAULT 0, ended REAL NOT NULL DEFAULT 0);
CREATE TABLE parameters (
  trial INTEGER NOT NULL REFERENCES trials(id), position INTEGER NOT NULL, path TEXT NOT NULL, value TEXT NOT NULL,
  PRIMARY KEY (trial, position));
CREATE TABLE rungs (
  trial INTEGER NOT NULL REFERENCES trials(id), rung INTEGER NOT NULL, resource INTEGER NOT NULL, value REAL,
  ended REAL NOT NULL, PRIMARY KEY (trial, rung));
CREATE TABLE attempts (
  trial INTEGER NOT NULL REFERENCES trials(id), number INTEGER NOT NULL, pid INTEGER NOT NULL, process TEXT NOT NULL,
  result TEXT NOT NULL DEFAULT '', PRIMARY KEY (trial, number));
)";

constexpr const char* kNewColumns = R"(
ALTER TABLE trials ADD COLUMN launched REAL NOT NULL DEFAULT 0;
ALTER TABLE trials ADD COLUMN ran REAL NOT NULL DEFAULT 0;
ALTER TABLE rungs ADD COLUMN checkpoint TEXT NOT NULL DEFAULT '';
ALTER TABLE rungs ADD COLUMN checkpoint_step INTEGER NOT NULL DEFAULT -1;
)";

// Adds the time since the launch of a running trial.
constexpr const char* kAddTime =
    "ran = ran + CASE WHEN state = 'running' AND launched > 0 THEN max(0, ? - launched) ELSE 0 END";

constexpr std::array kStates{TrialState::waiting, TrialState::running, TrialState::paused, TrialState::completed,
                             TrialState::failed};

TrialState state_of(const std::string& text) {
  for (const TrialState state : kStates) {
    if (text == word(state)) return state;
  }
  throw Error("sweep: a trial's state is \"" + cut_text(text) + "\", which this version does not know.");
}

std::string file_of(const std::string& folder) {
  return (fs::path(folder) / "sweep.sqlite").string();
}

/// A statement with its values bound in their order.
template <class... Values>
SqliteStatement query(SqliteFile& database, const std::string& sql, const Values&... values) {
  SqliteStatement statement = database.prepare(sql);
  int place = 0;
  (statement.bind(++place, values), ...);
  return statement;
}

void put(SqliteFile& database, const std::string& key, const std::string& value) {
  query(database, "INSERT OR REPLACE INTO sweep VALUES (?, ?)", key, value).run();
}

std::string get(SqliteFile& database, const std::string& key) {
  SqliteStatement value = query(database, "SELECT value FROM sweep WHERE key = ?", key);
  return value.step() ? value.text(0) : "";
}

[[noreturn]] void refuse_damaged(const std::string& folder, const std::string& what) {
  throw Error(file_of(folder) + " is damaged: " + what + ". Use a copy of it, or begin the sweep in another folder.");
}

/// The trial that a row of another table names.
Trial& trial_of(std::vector<Trial>& trials, const std::string& folder, int64_t id) {
  if (id < 0 || id >= std::ssize(trials)) {
    refuse_damaged(folder, "it has values of a trial " + std::to_string(id) + ", and " + std::to_string(trials.size()) +
                               " trials");
  }
  return trials[static_cast<size_t>(id)];
}

void note_result(SqliteFile& database, int64_t id, const std::string& result) {
  query(database,
        "UPDATE attempts SET result = ? WHERE trial = ? AND number = (SELECT launches FROM trials WHERE id = ?)",
        result, id, id)
      .run();
}

}  // namespace

bool any_has_value(const std::vector<Trial>& trials) {
  return std::any_of(trials.begin(), trials.end(), [](const Trial& trial) { return trial.value().has_value(); });
}

const char* word(TrialState state) {
  switch (state) {
    case TrialState::waiting: return "waiting";
    case TrialState::running: return "running";
    case TrialState::paused: return "paused";
    case TrialState::completed: return "completed";
    case TrialState::failed: return "failed";
  }
  return "";
}

std::string parameters_text(const Parameters& parameters) {
  std::string text;
  for (const auto& [path, value] : parameters) text += (text.empty() ? "" : " ") + path + "=" + value;
  return text;
}

bool is_better(double value, double than, bool higher_is_better) {
  if (std::isnan(value)) return false;
  if (std::isnan(than)) return true;
  return higher_is_better ? value > than : value < than;
}

const Trial* best_trial(const std::vector<Trial>& trials, bool higher_is_better) {
  const Trial* best = nullptr;
  for (const Trial& trial : trials) {
    if (trial.rungs.empty() || trial.state == TrialState::failed || std::isnan(trial.rungs.back().value)) continue;
    if (best == nullptr) {
      best = &trial;
      continue;
    }
    const int64_t reached = trial.rungs.back().resource, most = best->rungs.back().resource;
    const bool further = reached > most;
    const bool as_far = reached == most;
    if (further || (as_far && is_better(trial.rungs.back().value, best->rungs.back().value, higher_is_better))) {
      best = &trial;
    }
  }
  return best;
}

SweepLock::SweepLock(const std::string& folder) {
  const std::string path = lock_file(folder);
  fd_ = open_lock(path);
  if (!lock_within_a_second(fd_)) {
    ::close(fd_);
    std::string holder;
    std::ifstream(path) >> holder;
    throw Error("the sweep in " + folder + " is being run by process " + holder +
                ". Wait for its end, or stop it with Ctrl-C; levin sweep status " + folder + " shows how far it is.");
  }
  const std::string text = std::to_string(::getpid()) + "\n";
  (void)!::ftruncate(fd_, 0);
  (void)!::write(fd_, text.data(), text.size());
}

std::unique_ptr<SweepLock> SweepLock::try_take(const std::string& folder) {
  const int fd = open_lock(lock_file(folder));
  std::unique_ptr<SweepLock> lock(new SweepLock(fd));  // closes it in any case
  return ::flock(fd, LOCK_EX | LOCK_NB) == 0 ? std::move(lock) : nullptr;
}

SweepLock::~SweepLock() {
  ::close(fd_);
}

bool SweepLock::is_held(const std::string& folder) {
  return is_file_locked(lock_file(folder));
}

bool SweepStore::exists(const std::string& folder) {
  std::error_code code;
  return fs::exists(file_of(folder), code);
}

SweepStore SweepStore::create(const std::string& folder, const Plan& plan) {
  make_folder((fs::path(folder) / "trials").string());
  const std::string path = file_of(folder);
  const std::string unfinished = temporary_name(path);  // a sweep is there as a whole or not at all
  {
    SqliteFile database(unfinished, kStorePatience);
    SqliteTransaction all(database);
    database.execute(kSchema);
    database.execute(kNewColumns);
    put(database, "format", kFormat);
    put(database, "name", plan.name);
    put(database, "sweep", plan.sweep);
    put(database, "working_folder", plan.working_folder);
    put(database, "max_resource", std::to_string(plan.max_resource));
    put(database, "stop_grace", number_text(plan.stop_grace.count()));
    put(database, "elapsed", "0");
    all.commit();
  }
  std::error_code code;
  fs::rename(unfinished, path, code);
  if (code) throw Error("sweep: cannot write " + path + ": " + code.message() + ".");
  return SweepStore(folder);
}

SweepStore::SweepStore(const std::string& folder) : folder_(folder) {
  if (!exists(folder)) {
    throw Error("no sweep in " + cut_text(folder, 200) +
                ": it has no file sweep.sqlite. Begin one with levin sweep FILE, or name another folder.");
  }
  database_ = std::make_shared<SqliteFile>(file_of(folder), kStorePatience);
  database_->execute("PRAGMA foreign_keys = ON; PRAGMA synchronous = FULL;");
  upgrade();
  read_plan();
}

// A sweep of an earlier version continues; which checkpoints its values belong to was not recorded.
void SweepStore::upgrade() {
  if (get(*database_, "format") != kFirstFormat) return;
  SqliteTransaction all(*database_);
  if (get(*database_, "format") != kFirstFormat) return;  // another process was faster
  database_->execute(kNewColumns);
  put(*database_, "format", kFormat);
  all.commit();
}

void SweepStore::read_plan() {
  const std::string format = get(*database_, "format");
  if (format != kFormat) {
    throw Error(file_of(folder_) + " is of format " + cut_text(format) + ", and this Levin reads format " + kFormat +
                ". Use the Levin that wrote it, or another folder.");
  }
  plan_.name = get(*database_, "name");
  plan_.sweep = get(*database_, "sweep");
  plan_.working_folder = get(*database_, "working_folder");
  const std::string most = get(*database_, "max_resource");
  if (!detail::parse_int(most, plan_.max_resource)) {
    refuse_damaged(folder_, "its max_resource is \"" + cut_text(most) + "\", which is not a whole number");
  }
  double grace = 0;
  if (detail::parse_double(ConfigNode::scalar(get(*database_, "stop_grace")), grace)) plan_.stop_grace = Seconds(grace);
  Problems problems;
  const SweepFile file = read_sweep_text(plan_.sweep, plan_.name, problems);
  problems.throw_if_any();
  options_ = file.options;
  space_ = file.space;
}

void SweepStore::change_limits(const std::string& sweep) {
  put(*database_, "sweep", sweep);
  read_plan();
}

std::string SweepStore::trial_folder(int64_t id) const {
  return (fs::path(folder_) / "trials" / formatted("%04ld", id)).string();
}

void SweepStore::read_trials() {
  trials_.clear();
  SqliteStatement row = query(*database_,
                              "SELECT id, state, bracket, target, finished, slot, launches, failures, error, pid, "
                              "process, started, ended, launched, ran FROM trials ORDER BY id");
  while (row.step()) {
    if (row.integer(0) != std::ssize(trials_)) {
      refuse_damaged(folder_, "it has no trial " + std::to_string(trials_.size()));
    }
    trials_.push_back({.id = row.integer(0),
                       .state = state_of(row.text(1)),
                       .bracket = row.integer(2),
                       .target = row.integer(3),
                       .finished = row.integer(4) != 0,
                       .slot = row.integer(5),
                       .launches = row.integer(6),
                       .failures = row.integer(7),
                       .error = row.text(8),
                       .pid = row.integer(9),
                       .process = row.text(10),
                       .started = row.number(11),
                       .ended = row.number(12),
                       .launched = row.number(13),
                       .ran = row.number(14)});
  }
  SqliteStatement parameter = query(*database_, "SELECT trial, path, value FROM parameters ORDER BY trial, position");
  while (parameter.step()) {
    trial_of(trials_, folder_, parameter.integer(0)).parameters.emplace_back(parameter.text(1), parameter.text(2));
  }
  SqliteStatement rung =
      query(*database_, "SELECT trial, resource, value, checkpoint, checkpoint_step FROM rungs ORDER BY trial, rung");
  while (rung.step()) {
    trial_of(trials_, folder_, rung.integer(0))
        .rungs.push_back({rung.integer(1), rung.number(2), rung.text(3), rung.integer(4)});
  }
}

const std::vector<Trial>& SweepStore::trials() {
  if (read_version_ == database_->version()) return trials_;
  SqliteTransaction same_moment(*database_, /*only_reads=*/true);
  read_version_.reset();
  read_trials();
  read_version_ = database_->version();
  same_moment.commit();
  return trials_;
}

Trial SweepStore::trial(int64_t id) {
  const std::vector<Trial>& all = trials();
  if (id < 0 || id >= std::ssize(all)) {
    throw Error("sweep: no trial " + std::to_string(id) + " in " + folder_ + ", which has " +
                (all.empty() ? "none yet." : "0 to " + std::to_string(all.size() - 1) + "."));
  }
  return all[static_cast<size_t>(id)];
}

std::optional<int64_t> SweepStore::add(const std::function<std::optional<NewTrial>(int64_t id)>& propose) {
  SqliteTransaction all(*database_);
  const int64_t id = database_->integer_of("SELECT count(*) FROM trials").value_or(0);
  const std::optional<NewTrial> trial = propose(id);
  if (!trial) return std::nullopt;
  query(*database_, "INSERT INTO trials (id, state, bracket, target) VALUES (?, 'waiting', ?, ?)", id, trial->bracket,
        trial->target)
      .run();
  int64_t position = 0;
  for (const auto& [path, value] : trial->parameters) {
    query(*database_, "INSERT INTO parameters VALUES (?, ?, ?, ?)", id, position++, path, value).run();
  }
  all.commit();
  return id;
}

void SweepStore::go_on(int64_t id, int64_t target) {
  query(*database_, "UPDATE trials SET state = 'waiting', target = ? WHERE id = ? AND state = 'paused'", target, id)
      .run();
}

bool SweepStore::take(int64_t id, int64_t slot, double now) {
  SqliteTransaction all(*database_);
  query(*database_,
        "UPDATE trials SET state = 'running', slot = ?, launches = launches + 1, pid = 0, process = '', "
        "launched = ?, started = CASE WHEN started = 0 THEN ? ELSE started END WHERE id = ? AND state = 'waiting'",
        slot, now, now, id)
      .run();
  if (database_->changes() == 0) return false;
  query(*database_, "INSERT INTO attempts SELECT id, launches, 0, '', '' FROM trials WHERE id = ?", id).run();
  all.commit();
  return true;
}

void SweepStore::set_process(int64_t id, int64_t pid, const std::string& process) {
  SqliteTransaction all(*database_);
  query(*database_, "UPDATE trials SET pid = ?, process = ? WHERE id = ?", pid, process, id).run();
  query(*database_,
        "UPDATE attempts SET pid = ?, process = ? WHERE trial = ? AND number = (SELECT launches FROM trials "
        "WHERE id = ?)",
        pid, process, id, id)
      .run();
  all.commit();
}

void SweepStore::put_back(int64_t id, double now) {
  SqliteTransaction all(*database_);
  note_result(*database_, id, "stopped");
  query(
      *database_,
      std::string("UPDATE trials SET ") + kAddTime + ", state = 'waiting', pid = 0 WHERE id = ? AND state = 'running'",
      now, id)
      .run();
  all.commit();
}

void SweepStore::record_result(int64_t id, const RungResult& result, bool finished, bool higher, double now) {
  SqliteTransaction all(*database_);
  query(*database_,
        "INSERT INTO rungs (trial, rung, resource, value, ended, checkpoint, checkpoint_step) "
        "SELECT ?, (SELECT count(*) FROM rungs WHERE trial = ?), ?, ?, ?, ?, ?",
        id, id, result.resource, result.value, now, result.checkpoint, result.checkpoint_step)
      .run();
  note_result(*database_, id, "value");
  query(*database_,
        std::string("UPDATE trials SET ") + kAddTime +
            ", state = ?, finished = ?, pid = 0, error = '', ended = ? WHERE id = ?",
        now, std::string(word(higher ? TrialState::paused : TrialState::completed)), int64_t{finished}, now, id)
      .run();
  all.commit();
}

void SweepStore::record_failure(int64_t id, const std::string& error, bool again, double now) {
  SqliteTransaction all(*database_);
  note_result(*database_, id, error);
  query(*database_,
        std::string("UPDATE trials SET ") + kAddTime +
            ", state = ?, failures = failures + 1, error = ?, pid = 0, ended = ? WHERE id = ?",
        now, std::string(word(again ? TrialState::waiting : TrialState::failed)), error, now, id)
      .run();
  all.commit();
}

bool SweepStore::tell(int64_t id, double value, double now) {
  SqliteTransaction all(*database_);
  query(*database_,
        "UPDATE trials SET state = 'completed', finished = 1, started = ?, ended = ? "
        "WHERE id = ? AND state = 'waiting' AND launches = 0",
        now, now, id)
      .run();
  if (database_->changes() == 0) return false;
  query(*database_, "INSERT INTO rungs (trial, rung, resource, value, ended) VALUES (?, 0, 0, ?, ?)", id, value, now)
      .run();
  all.commit();
  return true;
}

double SweepStore::elapsed() {
  const std::string elapsed = get(*database_, "elapsed");
  double seconds = 0;
  if (!detail::parse_double(elapsed, seconds)) {
    refuse_damaged(folder_, "its elapsed is \"" + cut_text(elapsed) + "\", which is not a number");
  }
  return seconds;
}

void SweepStore::set_elapsed(double seconds) {
  put(*database_, "elapsed", std::to_string(seconds));
}

}  // namespace levin
