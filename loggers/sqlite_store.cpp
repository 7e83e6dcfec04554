#include "levin/loggers/sqlite_store.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

#include "levin/core/error.h"
#include "levin/core/this_process.h"
#include "levin/core/wall_clock.h"

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

}  // namespace levin
