// The file of one rank's log: run.log, rotated by size. Internal; see log.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "levin/core/fields.h"
#include "levin/core/log_levels.h"

namespace levin::log {

enum class Format { text, json };

/// What a run's log looks like, and how much of it is kept.
struct LogOptions {
  std::string level = "info";            // or "data=debug,info"
  std::string format = "text";           // or "json": one object a line
  int64_t max_bytes = 10 * 1024 * 1024;  // of a file, before the next is begun
  int64_t max_files = 5;                 // of each rank; the oldest is removed
  template <class = void>
  static auto fields() {
    return levin::fields(
        levin::field("level", &LogOptions::level, "least level of lines in run.log: debug, or data=debug,info"),
        levin::field("format", &LogOptions::format, "text, or json: one object a line")
            .check([](const std::string& word) { return word == "text" || word == "json"; }, "text or json"),
        levin::field("max_bytes", &LogOptions::max_bytes, "bytes of a file, before the next is begun").min(1000),
        levin::field("max_files", &LogOptions::max_files, "files of each rank; the oldest is removed")
            .min(1)
            .max(1000));
  }
};

/// One line, as it was written.
struct Line {
  std::chrono::system_clock::time_point time;
  Level level = Level::info;
  std::string component;
  int64_t epoch = -1;  // -1: not known
  int64_t step = -1;
  std::string text;
};

/// "run.log" of rank 0, "run.rank1.log" of rank 1.
[[nodiscard]] std::string file_name(int64_t rank);

/// Whether a file with this name is written by the log of a rank: "run.log", "run.2.log", "run.rank1.log", ….
[[nodiscard]] bool is_log_file(const std::string& name);

class LogFile {
 public:
  /// Continues the file if it exists; creates its folder. Throws Error naming path and cause.
  LogFile(const std::string& path, int64_t rank, Format format, const LogOptions& options);
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  /// In the file before this returns. Throws Error naming path and cause.
  void write(const Line& line);

 private:
  struct Sink;
  std::string path_;
  int64_t rank_;
  Format format_;
  std::unique_ptr<Sink> sink_;
};

}  // namespace levin::log
