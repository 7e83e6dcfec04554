// A file that grows by whole records: event files, JSON lines. A killed process leaves at most one torn record, the
// last.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/loggers/disk_patience.h"

namespace levin {

class AppendFile {
 public:
  /// `logger` begins the messages. Records wait in memory for up to `flush_secs` seconds, or until they are 1 MB.
  AppendFile(std::string logger, double flush_secs)
      : logger_(std::move(logger)), flush_secs_(flush_secs), patience_(logger_, "record", {"record", "records"}) {}

  /// The file to write; its contents stay. `opening`: how a new file begins. Nothing is read or written yet; what
  /// waited is dropped.
  void set_path(std::string path, std::string opening = "");
  [[nodiscard]] const std::string& path() const { return path_; }

  void add(std::string_view record);
  /// Writes what waits, with one write call, if it is due.
  void write_if_due();
  /// The same at once, except on a disk that has just failed: see Note [Waiting for a disk]. Never throws for a disk.
  void write();
  /// The run is over: the last try; what cannot be written is lost, and counted in a message.
  void finish();
  void drop_waiting();

  /// Bytes in the file and waiting.
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
  bool created_ = false;  // by this object, or seen: from here on a missing file was removed by somebody
  bool torn_ = false;     // a failed write has left a part of a record after in_file_
  std::optional<std::chrono::steady_clock::time_point> written_ = std::nullopt;
};

/// Shortens a file to `bytes`; returns the size that it had, -1 if there is none. Throws Error naming path and cause.
int64_t cut_file(const std::string& path, int64_t bytes);

}  // namespace levin
