#include "levin/core/files/sqlite.h"

#include <sqlite3.h>

#include <cmath>
#include <utility>

namespace levin {

namespace {

// SQLite's messages quote the file's schema, which may be damaged.
[[noreturn]] void fail_sqlite(sqlite3* connection, const std::string& path, int code) {
  const std::string reason = cut_text(connection != nullptr ? sqlite3_errmsg(connection) : sqlite3_errstr(code), 300);
  throw SqliteError(path + ": " + reason + ".", code & 0xff);
}

}  // namespace

bool SqliteError::is_passing() const {
  return is_busy() || code_ == SQLITE_FULL || code_ == SQLITE_IOERR || code_ == SQLITE_PROTOCOL;
}

bool SqliteError::is_busy() const {
  return code_ == SQLITE_BUSY || code_ == SQLITE_LOCKED;
}

SqliteStatement::SqliteStatement(sqlite3* connection, const std::string& path, const std::string& sql)
    : connection_(connection), path_(path) {
  expect(sqlite3_prepare_v2(connection_, sql.c_str(), static_cast<int>(sql.size()), &statement_, nullptr));
}

SqliteStatement::~SqliteStatement() {
  sqlite3_finalize(statement_);
}

SqliteStatement::SqliteStatement(SqliteStatement&& other) noexcept
    : connection_(other.connection_),
      path_(std::move(other.path_)),
      statement_(std::exchange(other.statement_, nullptr)) {}

void SqliteStatement::expect(int code) {
  if (code != SQLITE_OK) fail_sqlite(connection_, path_, code);
}

SqliteStatement& SqliteStatement::bind(int place, int64_t value) {
  expect(sqlite3_bind_int64(statement_, place, value));
  return *this;
}

SqliteStatement& SqliteStatement::bind(int place, double value) {
  expect(sqlite3_bind_double(statement_, place, value));
  return *this;
}

SqliteStatement& SqliteStatement::bind(int place, const std::string& value) {
  expect(sqlite3_bind_text64(statement_, place, value.data(), value.size(), SQLITE_TRANSIENT, SQLITE_UTF8));
  return *this;
}

SqliteStatement& SqliteStatement::bind_null(int place) {
  expect(sqlite3_bind_null(statement_, place));
  return *this;
}

bool SqliteStatement::step() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  const std::string reason = cut_text(sqlite3_errmsg(connection_), 300);
  sqlite3_reset(statement_);
  throw SqliteError(path_ + ": " + reason + ".", code & 0xff);
}

void SqliteStatement::reset() {
  sqlite3_reset(statement_);
}

void SqliteStatement::run() {
  step();
  reset();
}

int64_t SqliteStatement::integer(int column) const {
  return sqlite3_column_int64(statement_, column);
}

double SqliteStatement::number(int column) const {
  return is_null(column) ? std::nan("") : sqlite3_column_double(statement_, column);
}

std::string SqliteStatement::text(int column) const {
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  return bytes == nullptr ? "" : std::string(bytes, static_cast<size_t>(sqlite3_column_bytes(statement_, column)));
}

bool SqliteStatement::is_null(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

SqliteFile::SqliteFile(std::string path, Seconds patience, bool read_only) : path_(std::move(path)) {
  const int flags = read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  const int code = sqlite3_open_v2(path_.c_str(), &connection_, flags | SQLITE_OPEN_NOMUTEX, nullptr);
  if (code != SQLITE_OK) {
    const std::string reason =
        cut_text(connection_ != nullptr ? sqlite3_errmsg(connection_) : sqlite3_errstr(code), 300);
    sqlite3_close(connection_);
    throw SqliteError(path_ + ": " + reason + ".", code & 0xff);
  }
  set_patience(patience);
}

SqliteFile::~SqliteFile() {
  sqlite3_close(connection_);
}

void SqliteFile::set_patience(Seconds patience) {
  sqlite3_busy_timeout(connection_, static_cast<int>(patience.count() * 1000));
}

SqliteStatement SqliteFile::prepare(const std::string& sql) {
  return {connection_, path_, sql};
}

void SqliteFile::execute(const std::string& sql) {
  const int code = sqlite3_exec(connection_, sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail_sqlite(connection_, path_, code);
}

std::optional<int64_t> SqliteFile::integer_of(const std::string& sql) {
  SqliteStatement statement = prepare(sql);
  return statement.step() ? std::optional(statement.integer(0)) : std::nullopt;
}

std::optional<std::string> SqliteFile::text_of(const std::string& sql) {
  SqliteStatement statement = prepare(sql);
  return statement.step() ? std::optional(statement.text(0)) : std::nullopt;
}

int64_t SqliteFile::last_row() const {
  return sqlite3_last_insert_rowid(connection_);
}

int64_t SqliteFile::changes() const {
  return sqlite3_changes(connection_);
}

std::pair<int64_t, int64_t> SqliteFile::version() {
  return {integer_of("PRAGMA data_version").value_or(0), sqlite3_total_changes(connection_)};
}

SqliteTransaction::SqliteTransaction(SqliteFile& file, bool only_reads) : file_(file) {
  file_.execute(only_reads ? "BEGIN" : "BEGIN IMMEDIATE");
}

SqliteTransaction::~SqliteTransaction() {
  if (!open_) return;
  try {
    file_.execute("ROLLBACK");
  } catch (const SqliteError&) {
    // SQLite has rolled it back by itself, as it does when the disk is full
  }
}

void SqliteTransaction::commit() {
  file_.execute("COMMIT");
  open_ = false;
}

}  // namespace levin
