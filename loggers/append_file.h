// Files that grow by whole records (event files, JSON lines), and what loggers do while the disk takes nothing. A
// killed process leaves at most one incomplete record, the last.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace levin {

// Note [Waiting for a disk]
// A failed write does not end a run: the data is kept in memory, within a limit, and written when there is room again.
// After a failure the next writes are skipped: one, three, seven, …, so that a full disk costs
// little. The first failure, the recovery and what was lost are printed.

/// What a logger does while the disk takes no writes: decides which writes to try, counts what is lost, and prints the
/// messages. Not thread-safe.
class DiskPatience {
 public:
  /// `logger` begins the messages; `lost` is what the last message counts, e.g. {"row of metrics", "rows of metrics"}.
  DiskPatience(std::string logger, std::string unit, std::pair<std::string, std::string> lost)
      : logger_(std::move(logger)), unit_(std::move(unit)), lost_name_(std::move(lost)) {}

  [[nodiscard]] bool failing() const { return failing_; }
  /// Asked before each write: returns true if this write is skipped.
  [[nodiscard]] bool skips_write() { return left_out_++ < leave_out_; }
  /// The next write is not skipped.
  void try_next() { leave_out_ = 0; }
  void add_lost(int64_t count) { lost_ += count; }

  void failed(const std::string& cause);
  /// `count` rows that waited are in the file `path`.
  void wrote(const std::string& path, int64_t count);
  /// Called at the end of the run: prints what was lost, if anything.
  void give_up();

 private:
  std::string logger_;
  std::string unit_;
  std::pair<std::string, std::string> lost_name_;
  bool failing_ = false;
  int64_t left_out_ = 0;  // writes skipped since the last failure
  int64_t leave_out_ = 0;
  std::string cause_ = "";  // the last failure's
  int64_t lost_ = 0;        // since the first failure in a row
};

/// A file to which a logger appends records. A full disk does not throw: see Note [Waiting for a disk]. Not
/// thread-safe.
class AppendFile {
 public:
  /// `logger` begins the messages. Records wait in memory for up to `flush_secs` seconds, or until they are 1 MB.
  AppendFile(std::string logger, double flush_secs)
      : logger_(std::move(logger)), flush_secs_(flush_secs), patience_(logger_, "record", {"record", "records"}) {}

  /// Sets the file; its contents stay. `opening` is the beginning of a new file. Nothing is read or written yet;
  /// waiting records are dropped.
  void set_path(std::string path, std::string opening = "");
  [[nodiscard]] const std::string& path() const { return path_; }

  void add(std::string_view record);
  /// Writes the waiting records with one system call if they are due.
  void write_if_due();
  /// Writes the waiting records now, except to a disk that has just failed.
  void write();
  /// Called at the end of the run: tries once more; a message counts what is lost.
  void finish();
  void drop_waiting();

  /// Returns the bytes in the file and waiting.
  [[nodiscard]] uint64_t size() const;
  [[nodiscard]] bool is_waiting() const { return !waiting_.empty(); }

 private:
  void append();
  void keep_what_fits(int fd, uint64_t size_before, size_t opening_bytes);
  void forget_first(size_t count, size_t bytes);
  int open_file();
  void drop_excess();

  std::string logger_;
  double flush_secs_;
  DiskPatience patience_;
  std::string path_ = "";
  std::string opening_ = "";
  std::string waiting_ = "";
  std::vector<uint32_t> lengths_ = {};  // of the waiting records
  uint64_t in_file_ = 0;
  bool created_ = false;  // the file existed at some time: if it is missing now, somebody has removed it
  bool torn_ = false;     // a failed write has left an incomplete record after in_file_
  std::optional<std::chrono::steady_clock::time_point> written_ = std::nullopt;
};

/// Shortens a file to `bytes`; returns the size that it had, -1 if there is none. Throws Error naming path and cause.
int64_t cut_file(const std::string& path, int64_t bytes);

}  // namespace levin
