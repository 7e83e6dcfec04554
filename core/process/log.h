// The log of a run: run.log in its folder, with one file for each rank. Modules and callbacks may write to it too:
//
//   levin::log::info("kept {} of {} boxes, the best at {:.3f}", kept, boxes, score);
//
//   levin::log::Component sampler("sampler");             your own component, with its own level
//   sampler.debug("drew {} negatives", count);            written with LEVIN_LOG=sampler=debug
//
// The console stays short: warnings and errors are shown there, other lines only if their level was set to debug or
// trace. A line whose level is off costs one load of an atomic; its values are not converted. Lines that are written
// before the run has a folder are kept until it has one.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/core/process/log_text.h"

namespace levin::log {

/// How serious a line of the log is; `off` as a level lets no line through.
enum class Level : int { trace, debug, info, warn, error, off };

/// "trace", "debug", "info", "warning", "error", "off".
[[nodiscard]] const char* level_name(Level level);

namespace detail {

/// The level of one component, read without a lock wherever a line could be written.
struct Slot {
  const char* name;
  std::atomic<Level> level = Level::info;  // the least that is written
  std::atomic<bool> echoes = false;        // its lines also go to standard error
};

inline constinit Slot trainer_slot{"trainer"};
inline constinit Slot data_slot{"data"};
inline constinit Slot strategy_slot{"strategy"};
inline constinit Slot checkpoint_slot{"checkpoint"};
inline constinit Slot logger_slot{"logger"};
inline constinit Slot launcher_slot{"launcher"};
inline constinit Slot hooks_slot{"hooks"};
inline constinit Slot console_slot{"console"};
inline constinit Slot user_slot{"user"};

/// Returns the slot with this name, created on first use; it lives as long as the process. All characters of the name
/// but letters, digits, _ . - are replaced by _.
Slot& slot_of(const std::string& name);

}  // namespace detail

/// The levels in a string such as "data=debug,info".
struct Levels {
  std::optional<Level> all = std::nullopt;  // of components that are not named
  std::vector<std::pair<std::string, Level>> components = {};
};

/// Parses levels. Throws ConfigError, beginning with `source` ("LEVIN_LOG"), that names an unknown level or component
/// and lists the known ones.
[[nodiscard]] Levels parse_levels(const std::string& text, const std::string& source);

/// Returns the names of all components, sorted.
[[nodiscard]] std::vector<std::string> component_names();

/// Sets the level of every component: info, or the level in the last item that mentions it. A component that is set to
/// debug or trace also writes to standard error.
void apply_levels(const std::vector<Levels>& all);

/// How the log writes its lines: as text for people, or as JSON objects.
enum class Format { text, json };

/// What a run's log looks like, and how much of it is kept.
struct LogOptions {
  std::string level = "info";            // or "data=debug,info"
  std::string format = "text";           // or "json": one object a line
  int64_t max_bytes = 10 * 1024 * 1024;  // of a file, before the next one is started
  int64_t max_files = 5;                 // of each rank; the oldest is removed
  template <class = void>
  static auto fields() {
    return levin::fields(
        levin::field("level", &LogOptions::level, "least level of lines in run.log: debug, or data=debug,info"),
        levin::field("format", &LogOptions::format, "text, or json: one object a line")
            .check([](const std::string& word) { return word == "text" || word == "json"; }, "text or json"),
        levin::field("max_bytes", &LogOptions::max_bytes, "bytes of a file, before the next one is started").min(1000),
        levin::field("max_files", &LogOptions::max_files, "files of each rank; the oldest is removed")
            .min(1)
            .max(1000));
  }
};

/// One line of the log.
struct Line {
  std::chrono::system_clock::time_point time;
  Level level = Level::info;
  std::string component;
  int64_t epoch = -1;  // -1: not known
  int64_t step = -1;
  std::string text;
};

/// Returns "run.log" for rank 0, "run.rank1.log" for rank 1.
[[nodiscard]] std::string file_name(int64_t rank);

/// Returns true for names of log files: "run.log", "run.2.log", "run.rank1.log", ….
[[nodiscard]] bool is_log_file(const std::string& name);

/// An open log file. Not thread-safe: the log locks.
class LogFile {
 public:
  /// Continues the file if it exists; creates its folder. Throws Error naming path and cause.
  LogFile(const std::string& path, int64_t rank, Format format, const LogOptions& options);
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  /// Writes the line and flushes. Throws Error naming path and cause.
  void write(const Line& line);

 private:
  struct Sink;
  std::string path_;
  int64_t rank_;
  Format format_;
  std::shared_ptr<Sink> sink_;
};

namespace detail {

/// Writes to the file, and to the console if the level requires it. Never throws.
void write(const Slot& slot, Level level, const std::string& text) noexcept;
/// Writes to the file only. Never throws.
void record(const Slot& slot, Level level, const std::string& text) noexcept;

}  // namespace detail

/// A part of the library or of a program, whose level is set by its name. Cheap to copy; components with the same name
/// share their level. A name consists of letters, digits and _ . -. Thread-safe.
class Component {
 public:
  explicit Component(const std::string& name) : slot_(&detail::slot_of(name)) {}
  constexpr explicit Component(detail::Slot& slot) : slot_(&slot) {}

  [[nodiscard]] bool writes(Level level) const { return level >= slot_->level.load(std::memory_order_relaxed); }

  template <class... Values>
  void trace(TextFor<Values...> text, const Values&... values) const {
    if (writes(Level::trace)) detail::write(*slot_, Level::trace, filled<Values...>(text, values...));
  }
  template <class... Values>
  void debug(TextFor<Values...> text, const Values&... values) const {
    if (writes(Level::debug)) detail::write(*slot_, Level::debug, filled<Values...>(text, values...));
  }
  template <class... Values>
  void info(TextFor<Values...> text, const Values&... values) const {
    if (writes(Level::info)) detail::write(*slot_, Level::info, filled<Values...>(text, values...));
  }
  template <class... Values>
  void warn(TextFor<Values...> text, const Values&... values) const {
    if (writes(Level::warn)) detail::write(*slot_, Level::warn, filled<Values...>(text, values...));
  }
  template <class... Values>
  void error(TextFor<Values...> text, const Values&... values) const {
    if (writes(Level::error)) detail::write(*slot_, Level::error, filled<Values...>(text, values...));
  }
  /// Writes to the file only, for lines that the console shows by itself.
  void record(Level level, const std::string& text) const {
    if (writes(level)) detail::record(*slot_, level, text);
  }

 private:
  detail::Slot* slot_;
};

inline constexpr Component trainer{detail::trainer_slot};
inline constexpr Component data{detail::data_slot};
inline constexpr Component strategy{detail::strategy_slot};
inline constexpr Component checkpoint{detail::checkpoint_slot};
inline constexpr Component logger{detail::logger_slot};
inline constexpr Component launcher{detail::launcher_slot};
inline constexpr Component hooks{detail::hooks_slot};      // each hook that is called, at trace
inline constexpr Component console{detail::console_slot};  // the console's warnings and errors
inline constexpr Component user{detail::user_slot};        // levin::log::info and its siblings

template <class... Values>
void trace(TextFor<Values...> text, const Values&... values) {
  user.trace<Values...>(text, values...);
}
template <class... Values>
void debug(TextFor<Values...> text, const Values&... values) {
  user.debug<Values...>(text, values...);
}
template <class... Values>
void info(TextFor<Values...> text, const Values&... values) {
  user.info<Values...>(text, values...);
}
/// Also shown on the console, as Console::warn does.
template <class... Values>
void warn(TextFor<Values...> text, const Values&... values) {
  user.warn<Values...>(text, values...);
}
template <class... Values>
void error(TextFor<Values...> text, const Values&... values) {
  user.error<Values...>(text, values...);
}

// ---- for the trainer and the tool

/// Who sets levels and format; where several do, the later one in this list wins.
enum class Source { options, environment, command_line };

/// `levels`: "debug", "data=debug,info"; "" for nothing. Throws ConfigError and changes nothing if it has a mistake.
void set_levels(const std::string& levels, Source source);
/// "text" or "json"; "" for nothing. Throws ConfigError. For files that are opened afterwards.
void set_format(const std::string& format, Source source);
/// LEVIN_LOG (levels) and LEVIN_LOG_FORMAT. Throws ConfigError.
void read_environment();

/// Writes to the file of `rank` in `folder` from here on, first the lines that have waited for it. If it cannot be
/// written, a warning gives the reason and the run continues; a full disk is reported once, and at the end the number
/// of lost lines. The level and format of `options` count as Source::options. Throws ConfigError if they have a
/// mistake. Returns the number of the file. There is one file at a time: the one that was opened last.
int64_t open(const std::string& folder, int64_t rank, const LogOptions& options = {});
/// Closes the file; further lines wait for the next file, and have no epoch and step. `number`: the result of open();
/// does nothing if another run in this process has opened its file since. Unset: closes any file.
void close(std::optional<int64_t> number = std::nullopt);

/// Sets the epoch and step of the lines that follow; -1: not known.
void set_position(int64_t epoch, int64_t step);

/// Shows a line on the console. Set by Console; called without a lock.
using ConsoleOutput = void (*)(Level level, const std::string& component, const std::string& text);
void set_console_output(ConsoleOutput output);

}  // namespace levin::log
