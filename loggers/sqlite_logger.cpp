#include "levin/loggers/sqlite_logger.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>
#include <utility>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/this_process.h"
#include "levin/loggers/flat_options.h"
#include "levin/loggers/logger_folder.h"

namespace levin {

namespace {

constexpr int64_t kApplication = 0x4C564E52;  // "LVNR" in the file's header
constexpr int64_t kFormat = 1;
constexpr std::array kTables{"metrics", "texts", "tables", "histograms", "artifacts"};  // in the order of Table

constexpr const char* kSchema = R"sql(
CREATE TABLE runs (id INTEGER PRIMARY KEY, uuid TEXT NOT NULL UNIQUE, name TEXT NOT NULL, folder TEXT NOT NULL,
  started REAL NOT NULL, ended REAL, status TEXT NOT NULL, command TEXT NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL);
CREATE TABLE names (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE metrics (id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs, name INTEGER NOT NULL REFERENCES names,
  step INTEGER NOT NULL, time REAL NOT NULL, value REAL);
CREATE INDEX metrics_of_runs ON metrics (run, name, step);
CREATE TABLE hparams (run INTEGER NOT NULL REFERENCES runs, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (run, key));
CREATE TABLE final_metrics (run INTEGER NOT NULL REFERENCES runs, name TEXT NOT NULL, value REAL, PRIMARY KEY (run, name));
CREATE TABLE texts (id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs, name INTEGER NOT NULL REFERENCES names,
  step INTEGER NOT NULL, time REAL NOT NULL, text TEXT NOT NULL);
CREATE TABLE tables (id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs, name INTEGER NOT NULL REFERENCES names,
  step INTEGER NOT NULL, time REAL NOT NULL, json TEXT NOT NULL);
CREATE TABLE histograms (id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs, name INTEGER NOT NULL REFERENCES names,
  step INTEGER NOT NULL, time REAL NOT NULL, json TEXT NOT NULL);
CREATE TABLE artifacts (id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs, name INTEGER NOT NULL REFERENCES names,
  step INTEGER NOT NULL, time REAL NOT NULL, path TEXT NOT NULL);
CREATE VIEW curves AS SELECT runs.uuid AS run, runs.name AS run_name, names.name AS metric, step, time, value
  FROM metrics JOIN runs ON runs.id = metrics.run JOIN names ON names.id = metrics.name;
)sql";

constexpr size_t kMaxWaitingRows = 1'000'000;
constexpr Seconds kFirstPause = Seconds(1);
constexpr Seconds kLongestPause = Seconds(60);

std::string new_uuid() {
  std::random_device random;
  std::string text;
  for (int k = 0; k < 4; ++k) {
    constexpr std::string_view hex = "0123456789abcdef";
    uint32_t bits = random();
    for (int digit = 0; digit < 8; ++digit, bits >>= 4) text += hex[bits & 15];
  }
  return text;
}

double or_now(double time) {
  return time > 0 ? time : seconds_since_1970();
}

std::string json_text(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

SqliteStore::SqliteStore(const std::string& path, Seconds patience) : file_(path, patience) {
  // Changing to WAL does not wait for other connections by itself.
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (bool done = false; !done;) {
    try {
      make_tables();
      done = true;
    } catch (const SqliteError& error) {
      if (!error.is_busy() || std::chrono::steady_clock::now() > deadline) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  file_.execute("PRAGMA synchronous = NORMAL");
  for (const char* table : kTables) {
    inserts_.push_back(file_.prepare(std::string("INSERT INTO ") + table + " VALUES (NULL, ?1, ?2, ?3, ?4, ?5)"));
  }
}

// Several processes may be the first.
void SqliteStore::make_tables() {
  file_.execute("PRAGMA journal_mode = WAL");
  SqliteTransaction transaction(file_);
  const int64_t application = file_.integer_of("PRAGMA application_id").value_or(0);
  const int64_t format = file_.integer_of("PRAGMA user_version").value_or(0);
  const bool is_empty = file_.integer_of("SELECT count(*) FROM sqlite_master").value_or(0) == 0;
  if (is_empty && application == 0) {
    file_.execute(kSchema);
    file_.execute("PRAGMA application_id = " + std::to_string(kApplication));
    file_.execute("PRAGMA user_version = " + std::to_string(kFormat));
    return transaction.commit();
  }
  if (application != kApplication)
    throw Error(file_.path() + " is another program's database. Choose another path for SQLiteLogger.");
  if (format > kFormat)
    throw Error(file_.path() + " was made by a newer Levin (format " + std::to_string(format) +
                ", known: " + std::to_string(kFormat) + "). Choose another path for SQLiteLogger, or update Levin.");
}

void SqliteStore::open_run(const std::string& uuid, const std::string& name, const std::string& folder) {
  SqliteTransaction transaction(file_);
  SqliteStatement find = file_.prepare("SELECT id FROM runs WHERE uuid = ?1");
  const bool is_known = find.bind(1, uuid).step();
  if (is_known) run_ = find.integer(0);
  find.reset();
  last_rows_ = {};
  if (is_known) {
    file_.prepare("UPDATE runs SET status = 'running', ended = NULL, command = ?2, host = ?3, pid = ?4 WHERE id = ?1")
        .bind(1, run_)
        .bind(2, own_command_text())
        .bind(3, host_name())
        .bind(4, static_cast<int64_t>(::getpid()))
        .run();
    transaction.commit();
    return find_last_rows();
  }
  file_.prepare("INSERT INTO runs VALUES (NULL, ?1, ?2, ?3, ?4, NULL, 'running', ?5, ?6, ?7)")
      .bind(1, uuid)
      .bind(2, name)
      .bind(3, folder)
      .bind(4, seconds_since_1970())
      .bind(5, own_command_text())
      .bind(6, host_name())
      .bind(7, static_cast<int64_t>(::getpid()))
      .run();
  run_ = file_.last_row();
  transaction.commit();
}

bool SqliteStore::has_run(const std::string& uuid, const std::string& folder) {
  SqliteStatement find = file_.prepare("SELECT 1 FROM runs WHERE uuid = ?1 AND folder = ?2");
  return find.bind(1, uuid).bind(2, folder).step();
}

void SqliteStore::mark_killed(const std::string& folder) {
  std::vector<int64_t> gone;
  {
    SqliteStatement find =
        file_.prepare("SELECT id, pid FROM runs WHERE status = 'running' AND host = ?1 AND folder = ?2");
    find.bind(1, host_name()).bind(2, folder);
    while (find.step()) {
      const auto pid = static_cast<pid_t>(find.integer(1));
      if (pid != ::getpid() && ::kill(pid, 0) != 0 && errno == ESRCH) gone.push_back(find.integer(0));
    }
  }
  for (const int64_t id : gone)
    file_.prepare("UPDATE runs SET status = 'killed' WHERE id = ?1 AND status = 'running'").bind(1, id).run();
}

int64_t SqliteStore::number_of(const std::string& name) {
  if (const auto known = names_.find(name); known != names_.end()) return known->second;
  file_.prepare("INSERT OR IGNORE INTO names (name) VALUES (?1)").bind(1, name).run();
  SqliteStatement find = file_.prepare("SELECT id FROM names WHERE name = ?1");
  find.bind(1, name).step();
  return names_[name] = find.integer(0);
}

void SqliteStore::write(const std::deque<SqliteRow>& rows, size_t count) {
  const auto last_rows = last_rows_;
  try {
    SqliteTransaction transaction(file_);
    for (size_t k = 0; k < count; ++k) insert(rows[k]);
    transaction.commit();
  } catch (...) {  // what was rolled back is known no more
    last_rows_ = last_rows;
    names_.clear();
    throw;
  }
}

void SqliteStore::insert(const SqliteRow& row) {
  SqliteStatement& statement = inserts_.at(static_cast<size_t>(row.table));
  statement.bind(1, run_).bind(2, number_of(row.name)).bind(3, row.at.step).bind(4, row.at.time);
  row.table == SqliteRow::Table::metrics ? statement.bind(5, row.value) : statement.bind(5, row.content);
  statement.run();
  last_rows_[static_cast<size_t>(row.table)] = file_.last_row();
}

void SqliteStore::write_hparams(const std::vector<std::pair<std::string, std::string>>& hparams) {
  SqliteTransaction transaction(file_);
  SqliteStatement insert = file_.prepare("INSERT OR REPLACE INTO hparams VALUES (?1, ?2, ?3)");
  for (const auto& [key, value] : hparams) insert.bind(1, run_).bind(2, key).bind(3, value).run();
  transaction.commit();
}

void SqliteStore::write_final_metrics(const MetricList& metrics) {
  SqliteTransaction transaction(file_);
  SqliteStatement insert = file_.prepare("INSERT OR REPLACE INTO final_metrics VALUES (?1, ?2, ?3)");
  for (const auto& [name, value] : metrics) insert.bind(1, run_).bind(2, name).bind(3, value).run();
  transaction.commit();
}

void SqliteStore::end_run(const std::string& status) {
  file_.prepare("UPDATE runs SET status = ?2, ended = ?3 WHERE id = ?1")
      .bind(1, run_)
      .bind(2, status)
      .bind(3, seconds_since_1970())
      .run();
  file_.execute("PRAGMA wal_checkpoint(PASSIVE)");  // waits for nobody
}

void SqliteStore::remove_run() {
  cut({});
  file_.prepare("DELETE FROM hparams WHERE run = ?1").bind(1, run_).run();
  file_.prepare("DELETE FROM runs WHERE id = ?1").bind(1, run_).run();
}

State SqliteStore::position() const {
  State state;
  for (size_t k = 0; k < kTables.size(); ++k) state.set(kTables[k], last_rows_[k]);
  return state;
}

void SqliteStore::find_last_rows() {
  for (size_t k = 0; k < kTables.size(); ++k) {
    SqliteStatement last =
        file_.prepare(std::string("SELECT ifnull(max(id), 0) FROM ") + kTables[k] + " WHERE run = ?1");
    last.bind(1, run_).step();
    last_rows_[k] = last.integer(0);
  }
}

void SqliteStore::cut(const State& position) {
  SqliteTransaction transaction(file_);
  for (const char* table : kTables) {
    file_.prepare(std::string("DELETE FROM ") + table + " WHERE run = ?1 AND id > ?2")
        .bind(1, run_)
        .bind(2, position.has(table) ? position.get<int64_t>(table) : int64_t{0})
        .run();
  }
  file_.prepare("DELETE FROM final_metrics WHERE run = ?1").bind(1, run_).run();
  transaction.commit();
  find_last_rows();
}

SQLiteLogger::SQLiteLogger(SQLiteLoggerOptions options)
    : options_(checked(std::move(options), "SQLiteLoggerOptions")), timer_([this] {
        const std::lock_guard lock(mutex_);
        if (is_waiting()) write_now();
      }) {}

SQLiteLogger::~SQLiteLogger() {
  timer_.stop();
  if (is_waiting()) write_now();
}

uint32_t SQLiteLogger::takes() const {
  return LogKind::scalars | LogKind::hyperparameters | LogKind::histograms | LogKind::text | LogKind::tables |
         LogKind::artifacts;
}

void SQLiteLogger::start(const std::string& default_root_dir, bool resume) {
  if (!path_.empty()) return;
  path_ = path_of_only_file("SQLiteLogger", options_.path, default_root_dir, "runs.sqlite");
  folder_ = absolute_path(default_root_dir);
  may_continue_ = resume;
  uuid_ = new_uuid();
  const std::lock_guard lock(mutex_);
  try {
    store_ = std::make_shared<SqliteStore>(path_, options_.busy_timeout);
  } catch (const SqliteError& error) {
    if (error.is_passing()) return report_failure(error.what());
    path_.clear();  // it has not started
    throw Error(std::string("SQLiteLogger: cannot open ") + error.what() +
                " Check the path, the disk and who else uses the file, or choose another path.");
  }
}

void SQLiteLogger::own_folder() {
  const std::lock_guard lock(mutex_);
  try {
    open_run();
  } catch (const Error& error) {
    report_failure(error.what());
  }
}

void SQLiteLogger::open_run() {
  if (store_ == nullptr) store_ = std::make_shared<SqliteStore>(path_, options_.busy_timeout);
  if (!is_open_) {
    store_->mark_killed(folder_);
    store_->open_run(uuid_, options_.name, folder_);
    is_open_ = true;
  }
  if (continued_) continue_run(*continued_);
  continued_.reset();
}

void SQLiteLogger::add(SqliteRow row) {
  const std::lock_guard lock(mutex_);
  row.at.time = or_now(row.at.time);
  if (waiting_.empty()) timer_.arm(options_.flush_every);
  waiting_.push_back(std::move(row));
  if (waiting_.size() > kMaxWaitingRows) {
    waiting_.pop_front();
    ++lost_;
  }
  const bool is_full = static_cast<int64_t>(waiting_.size()) >= options_.flush_logs_every_n_rows;
  if (is_full && (!failing_ || std::chrono::steady_clock::now() >= next_)) write_now();
}

bool SQLiteLogger::is_waiting() const {
  return !waiting_.empty() || !hparams_.empty() || !final_metrics_.empty() || continued_.has_value();
}

// A disk without room for all rows may have room for some of them.
void SQLiteLogger::write_rows() {
  for (size_t count = waiting_.size(); !waiting_.empty();) {
    count = std::min(count, waiting_.size());
    try {
      store_->write(waiting_, count);
      waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count));
    } catch (const SqliteError& error) {
      if (error.is_busy() || !error.is_passing() || count == 1) throw;
      count /= 2;
    }
  }
}

// Tries; what cannot be written keeps waiting, and the next attempt is due after a pause that doubles.
void SQLiteLogger::write_now() {
  const auto count = static_cast<int64_t>(waiting_.size());
  try {
    open_run();
    if (!hparams_.empty()) store_->write_hparams(hparams_);
    hparams_.clear();
    write_rows();
    if (!final_metrics_.empty()) store_->write_final_metrics(final_metrics_);
    final_metrics_.clear();
  } catch (const Error& error) {
    return report_failure(error.what());
  }
  pause_ = Seconds(0);
  if (!std::exchange(failing_, false)) return;
  Console::instance().print(
      "SQLiteLogger: " + path_ + " can be written again. It has the " + count_of(count, "row") + " that waited" +
      (lost_ > 0 ? "; " + count_of(lost_, "row before them is", "rows before them are") + " lost." : "."));
  lost_ = 0;
}

void SQLiteLogger::report_failure(const std::string& what) {
  cause_ = what;
  pause_ = std::clamp(2 * pause_, kFirstPause, kLongestPause);
  next_ = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(pause_);
  timer_.arm(pause_);
  if (std::exchange(failing_, true)) return;
  Console::instance().error("SQLiteLogger: cannot write " + what +
                            " Rows are kept in memory until they can be written; training continues.");
}

void SQLiteLogger::log_metrics(const MetricList& metrics, const LogPoint& at) {
  for (const auto& [name, value] : metrics) add({SqliteRow::Table::metrics, name, at, value, ""});
}

void SQLiteLogger::log_text(const std::string& name, const std::string& text, const LogPoint& at) {
  add({SqliteRow::Table::texts, name, at, 0, text});
}

void SQLiteLogger::log_artifact(const std::string& name, const std::string& path, const LogPoint& at) {
  add({SqliteRow::Table::artifacts, name, at, 0, absolute_path(path)});
}

void SQLiteLogger::log_table(const std::string& name, const LogTable& table, const LogPoint& at) {
  nlohmann::json rows = nlohmann::json::array();
  for (const auto& row : table.rows) {
    nlohmann::json cells = nlohmann::json::array();
    for (const auto& cell : row) std::visit([&](const auto& value) { cells.push_back(value); }, cell);
    rows.push_back(std::move(cells));
  }
  add({SqliteRow::Table::tables, name, at, 0, json_text({{"columns", table.columns}, {"data", std::move(rows)}})});
}

void SQLiteLogger::log_histogram(const std::string& name, const Histogram& histogram, const LogPoint& at) {
  const nlohmann::json json = {{"min", histogram.min},
                               {"max", histogram.max},
                               {"count", histogram.count},
                               {"sum", histogram.sum},
                               {"sum_squares", histogram.sum_squares},
                               {"nonfinite", histogram.nonfinite},
                               {"edges", histogram.edges},
                               {"counts", histogram.counts}};
  add({SqliteRow::Table::histograms, name, at, 0, json_text(json)});
}

void SQLiteLogger::log_hyperparams(const ConfigNode& hparams) {
  const std::lock_guard lock(mutex_);
  hparams_ = flat_options(hparams);
  if (!failing_) write_now();
}

void SQLiteLogger::log_final_metrics(const MetricList& metrics, const LogPoint&) {
  const std::lock_guard lock(mutex_);
  final_metrics_ = metrics;
}

State SQLiteLogger::state_dict() const {
  const std::lock_guard lock(mutex_);
  if (continued_ && !continued_->empty()) return *continued_;
  State state;
  state.set("run", uuid_);
  if (store_ != nullptr) state.put("rows", store_->position());
  return state;
}

void SQLiteLogger::load_state_dict(const State& saved) {
  const std::lock_guard lock(mutex_);
  if (path_.empty()) return;
  waiting_.clear();
  continued_ = saved;
  write_now();
}

void SQLiteLogger::continue_run(const State& saved) {
  const std::string run = saved.empty() ? uuid_ : saved.get<std::string>("run");
  if (run != uuid_) {
    if (!may_continue_ || !store_->has_run(run, folder_)) return;
    store_->remove_run();  // the one that was begun before it was known which one is continued
    uuid_ = run;
    store_->open_run(uuid_, options_.name, folder_);
  }
  store_->cut(saved.part("rows"));
}

void SQLiteLogger::save() {
  const std::lock_guard lock(mutex_);
  if (is_waiting()) write_now();
}

// The last chance for what waits.
void SQLiteLogger::finalize(const std::string& status) {
  timer_.stop();
  const std::lock_guard lock(mutex_);
  if (path_.empty()) return;
  if (is_waiting() || failing_) write_now();
  if (failing_) {
    lost_ += static_cast<int64_t>(waiting_.size());
    const std::string also = std::string(hparams_.empty() ? "" : ", and the hyperparameters") +
                             (final_metrics_.empty() ? "" : ", and the final metrics");
    waiting_.clear();
    hparams_.clear();
    final_metrics_.clear();
    Console::instance().error("SQLiteLogger: " + count_of(std::exchange(lost_, 0), "row is", "rows are") + " lost" +
                              also + ": " + cause_);
    failing_ = false;
  }
  if (!std::exchange(is_open_, false)) return;
  try {
    store_->end_run(status);
  } catch (const Error& error) {
    Console::instance().error(std::string("SQLiteLogger: cannot write the run's end to ") + error.what() +
                              " Its status stays \"running\"; training is not affected.");
  }
}

}  // namespace levin
