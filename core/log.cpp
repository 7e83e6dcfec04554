#include "levin/core/log.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "levin/core/error.h"
#include "levin/core/variables.h"

namespace levin::log {

namespace {

constexpr size_t kMostWaiting = 1000;  // lines before the folder is known

std::atomic<int64_t> position_epoch = -1;
std::atomic<int64_t> position_step = -1;
std::atomic<Voice> the_voice = nullptr;

struct State {
  std::mutex mutex = {};
  std::array<Levels, 3> levels = {};  // by Source
  std::array<std::optional<Format>, 3> formats = {};
  std::unique_ptr<LogFile> file = nullptr;
  std::string path = "";  // of the open file, or of the one that could not be opened
  std::deque<Line> waiting = {};
  int64_t left_out = 0;  // of the waiting lines
  int64_t lost = 0;      // lines since the file could last be written
  bool reported = false;
};

// Never destroyed: other statics may log when they are.
State& state() {
  static State& made = *new State;
  return made;
}

void show(Level level, const std::string& component, const std::string& text) {
  const Voice voice = the_voice.load();
  if (voice != nullptr) voice(level, component, text);
}

Line line_now(const std::string& component, Level level, std::string text) {
  return {std::chrono::system_clock::now(),
          level,
          component,
          position_epoch.load(std::memory_order_relaxed),
          position_step.load(std::memory_order_relaxed),
          std::move(text)};
}

// A full disk, or a folder that is gone: the run goes on. Returns what to report.
std::string put_line(State& now, const Line& line) {
  try {
    if (now.lost > 0) {
      now.file->write(line_now(
          "logger", Level::warn,
          std::to_string(now.lost) + (now.lost == 1 ? " line" : " lines") + " before this one could not be written."));
      now.lost = 0;
    }
    now.file->write(line);
    return "";
  } catch (const std::exception& error) {
    ++now.lost;
    if (std::exchange(now.reported, true)) return "";
    return std::string("the log of the run: ") + error.what() +
           " The run goes on; lines are missing until it can be written.";
  }
}

std::string keep_or_write(State& now, Line line) {
  if (now.file != nullptr) return put_line(now, line);
  if (!now.path.empty()) return "";  // it could not be opened, which was reported
  if (now.waiting.size() == kMostWaiting) {
    now.waiting.pop_front();
    ++now.left_out;
  }
  now.waiting.push_back(std::move(line));
  return "";
}

std::string open_file(State& now, const std::string& path, int64_t rank, const LogOptions& options) {
  now.file.reset();
  now.path = path;
  now.lost = 0;
  now.reported = false;
  Format format = Format::text;
  for (const auto& one : now.formats) format = one.value_or(format);
  try {
    now.file = std::make_unique<LogFile>(path, rank, format, options);
  } catch (const std::exception& error) {
    now.waiting.clear();
    return std::string("the log of the run: ") + error.what() + " The run goes on without this file.";
  }
  std::string problem;
  const auto put = [&](const Line& line) {
    if (const std::string found = put_line(now, line); !found.empty()) problem = found;
  };
  if (const int64_t count = std::exchange(now.left_out, 0); count > 0) {
    put(line_now("logger", Level::warn,
                 std::to_string(count) + " earlier lines are left out: at most " + std::to_string(kMostWaiting) +
                     " wait for the run's folder."));
  }
  for (const Line& line : std::exchange(now.waiting, {})) put(line);
  return problem;
}

void apply(State& now) {
  apply_levels({now.levels.begin(), now.levels.end()});
}

void change_levels(State& now, Source source, Levels levels) {
  const std::lock_guard lock(now.mutex);
  now.levels[static_cast<size_t>(source)] = std::move(levels);
  apply(now);
}

std::string place_of(Source source, const char* option, const char* variable, const char* field) {
  return source == Source::environment ? variable : source == Source::command_line ? option : field;
}

}  // namespace

namespace detail {

void record(const Slot& slot, Level level, const std::string& text) noexcept {
  try {
    std::string problem;
    {
      State& now = state();
      const std::lock_guard lock(now.mutex);
      problem = keep_or_write(now, line_now(slot.name, level, text));
    }
    if (!problem.empty()) show(Level::warn, "logger", problem);
  } catch (...) {  // NOLINT(bugprone-empty-catch): no memory is left for a line
  }
}

void write(const Slot& slot, Level level, const std::string& text) noexcept {
  record(slot, level, text);
  try {
    if (level >= Level::warn || slot.echoes.load(std::memory_order_relaxed)) show(level, slot.name, text);
  } catch (...) {  // NOLINT(bugprone-empty-catch): as above
  }
}

void the_text_does_not_fit_its_values(const char* /*why*/) {}

}  // namespace detail

void set_levels(const std::string& levels, Source source) {
  change_levels(state(), source, parse_levels(levels, place_of(source, "--log_level", "LEVIN_LOG", "log.level")));
}

void set_format(const std::string& format, Source source) {
  if (!format.empty() && format != "text" && format != "json") {
    throw ConfigError(place_of(source, "--log_format", "LEVIN_LOG_FORMAT", "log.format") + ": unknown format \"" +
                      cut_text(format) + "\". Known: text, json.");
  }
  State& now = state();
  const std::lock_guard lock(now.mutex);
  auto& own = now.formats[static_cast<size_t>(source)];
  own.reset();
  if (!format.empty()) own = format == "json" ? Format::json : Format::text;
}

void read_environment() {
  const Variables variables = process_variables();
  set_levels(variables("LEVIN_LOG").value_or(""), Source::environment);
  set_format(variables("LEVIN_LOG_FORMAT").value_or(""), Source::environment);
}

void open(const std::string& folder, int64_t rank, const LogOptions& options) {
  const LogOptions good = checked(options, "log");
  set_levels(good.level, Source::options);
  set_format(good.format, Source::options);
  const std::string path = folder + "/" + file_name(rank);
  std::string problem;
  {
    State& now = state();
    const std::lock_guard lock(now.mutex);
    if (now.path == path) return;
    problem = open_file(now, path, rank, good);
  }
  if (!problem.empty()) show(Level::warn, "logger", problem);
}

void close() {
  State& now = state();
  std::string problem;
  {
    const std::lock_guard lock(now.mutex);
    if (now.lost > 0) problem = std::to_string(now.lost) + " lines of " + now.path + " could not be written.";
    now.file.reset();
    now.path.clear();
    now.lost = 0;
  }
  set_position(-1, -1);
  if (!problem.empty()) show(Level::warn, "logger", problem);
}

void set_position(int64_t epoch, int64_t step) {
  position_epoch.store(epoch, std::memory_order_relaxed);
  position_step.store(step, std::memory_order_relaxed);
}

void set_voice(Voice voice) {
  the_voice.store(voice);
}

}  // namespace levin::log
