// A database in one file, read and written through SQLite: connections and statements that clean up after themselves,
// errors that name the file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/options/units.h"

struct sqlite3;
struct sqlite3_stmt;

namespace levin {

/// SQLite refused something; what() names the file and SQLite's reason.
class SqliteError : public Error {
 public:
  SqliteError(const std::string& what, int code) : Error(what), code_(code) {}
  [[nodiscard]] int code() const { return code_; }  // SQLITE_BUSY, SQLITE_FULL, …
  /// Returns true if the same statement may succeed later: another process holds the lock, or the disk is full.
  [[nodiscard]] bool is_passing() const;
  [[nodiscard]] bool is_busy() const;

 private:
  int code_;
};

/// One prepared statement: bind its parameters (from 1), then step() through its rows; reset() to use it again.
class SqliteStatement {
 public:
  SqliteStatement(sqlite3* connection, const std::string& path, const std::string& sql);
  ~SqliteStatement();
  SqliteStatement(SqliteStatement&& other) noexcept;
  SqliteStatement& operator=(SqliteStatement&&) = delete;

  SqliteStatement& bind(int place, int64_t value);
  SqliteStatement& bind(int place, int value) { return bind(place, static_cast<int64_t>(value)); }
  SqliteStatement& bind(int place, double value);  // nan is stored as NULL, as SQLite has none
  SqliteStatement& bind(int place, const std::string& value);
  SqliteStatement& bind_null(int place);

  /// True if there is a row. Throws SqliteError.
  bool step();
  void reset();
  /// Runs a statement that has no rows: step() and reset().
  void run();

  [[nodiscard]] int64_t integer(int column) const;
  [[nodiscard]] double number(int column) const;
  [[nodiscard]] std::string text(int column) const;
  [[nodiscard]] bool is_null(int column) const;

 private:
  void expect(int code);

  sqlite3* connection_;
  std::string path_;
  sqlite3_stmt* statement_ = nullptr;
};

/// An open database. Used by one thread at a time, with its statements.
class SqliteFile {
 public:
  /// Opens the file, and creates it unless it is `read_only`. `patience`: how long a statement waits for another
  /// connection's lock. Throws SqliteError. Whether the file is a database shows with the first statement.
  SqliteFile(std::string path, Seconds patience, bool read_only = false);
  ~SqliteFile();
  SqliteFile(const SqliteFile&) = delete;
  SqliteFile& operator=(const SqliteFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] SqliteStatement prepare(const std::string& sql);
  /// Runs statements separated by semicolons. Throws SqliteError.
  void execute(const std::string& sql);
  /// Returns the first column of the first row; unset without a row.
  [[nodiscard]] std::optional<int64_t> integer_of(const std::string& sql);
  [[nodiscard]] std::optional<std::string> text_of(const std::string& sql);
  [[nodiscard]] int64_t last_row() const;
  [[nodiscard]] int64_t changes() const;  // rows that the last INSERT, UPDATE or DELETE changed
  /// Changes when the content does, through this connection or another one; costs much less than reading it.
  [[nodiscard]] std::pair<int64_t, int64_t> version();
  void set_patience(Seconds patience);

 private:
  std::string path_;
  sqlite3* connection_ = nullptr;
};

/// A transaction that waits for other writers where it begins (BEGIN IMMEDIATE); with `only_reads` it sees one state of
/// the content and waits for nobody. It is rolled back unless commit() was called.
class SqliteTransaction {
 public:
  explicit SqliteTransaction(SqliteFile& file, bool only_reads = false);
  ~SqliteTransaction();
  SqliteTransaction(const SqliteTransaction&) = delete;
  SqliteTransaction& operator=(const SqliteTransaction&) = delete;
  void commit();

 private:
  SqliteFile& file_;
  bool open_ = true;
};

}  // namespace levin
