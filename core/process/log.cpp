#include "levin/core/process/log.h"

#include <fcntl.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/options/utf8.h"
#include "levin/core/process/this_process.h"

namespace levin::log {

namespace {

constexpr std::array kLevelNames{std::pair{"trace", Level::trace}, std::pair{"debug", Level::debug},
                                 std::pair{"info", Level::info},   std::pair{"warning", Level::warn},
                                 std::pair{"warn", Level::warn},   std::pair{"error", Level::error},
                                 std::pair{"off", Level::off}};

// Built-in slots and the slots that programs have added. Never destroyed: destructors of other statics may log.
struct Slots {
  struct Own {
    explicit Own(std::string given) : name(std::move(given)), slot{name.c_str()} {}
    std::string name;
    detail::Slot slot;
  };

  std::mutex mutex = {};
  std::vector<detail::Slot*> all = {&detail::trainer_slot,    &detail::data_slot,    &detail::strategy_slot,
                                    &detail::checkpoint_slot, &detail::logger_slot,  &detail::launcher_slot,
                                    &detail::hooks_slot,      &detail::console_slot, &detail::user_slot};
  std::deque<std::unique_ptr<Own>> own = {};
};

Slots& slots() {
  static Slots& made = *new Slots;
  return made;
}

std::optional<Level> level_of(const std::string& word) {
  for (const auto& [known, level] : kLevelNames) {
    if (word == known) return level;
  }
  return std::nullopt;
}

std::vector<std::string> known_levels() {
  return {"trace", "debug", "info", "warn", "error", "off"};
}

Level read_level(const std::string& word, const std::string& source) {
  if (const auto level = level_of(word)) return *level;
  throw ConfigError(source + ": unknown level \"" + cut_text(word) + "\"." + did_you_mean(word, known_levels()) +
                    " Known: " + join(known_levels()) + ". Write a level, or COMPONENT=LEVEL, separated by commas.");
}

void read_item(const std::string& item, const std::string& source, Levels& levels) {
  const size_t equals = item.find('=');
  if (equals == std::string::npos) {
    const auto names = component_names();
    if (std::find(names.begin(), names.end(), item) != names.end()) {
      throw ConfigError(source + ": no level follows the component \"" + item + "\". Write " + item + "=debug.");
    }
    levels.all = read_level(item, source);
    return;
  }
  const std::string name = trimmed(item.substr(0, equals));
  const auto names = component_names();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    throw ConfigError(source + ": unknown component \"" + cut_text(name) + "\"." + did_you_mean(name, names) +
                      " Known: " + join(names) + ".");
  }
  levels.components.emplace_back(name, read_level(trimmed(item.substr(equals + 1)), source));
}

spdlog::level::level_enum spdlog_level(Level level) {
  return static_cast<spdlog::level::level_enum>(level);
}
static_assert(static_cast<int>(Level::trace) == SPDLOG_LEVEL_TRACE &&
              static_cast<int>(Level::warn) == SPDLOG_LEVEL_WARN);
static_assert(static_cast<int>(Level::error) == SPDLOG_LEVEL_ERROR);

// spdlog escapes nothing, so %v is the rest of the JSON object, whose text is quoted here.
constexpr const char* kTextPattern = "%Y-%m-%d %H:%M:%S.%e %-7l %-10n %v";
constexpr const char* kJsonPattern = R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","component":"%n",%v})";

// Further lines of one message are indented, so that each line that begins with a date is a message.
std::string indented(const std::string& text) {
  std::string result;
  for (const char c : text) {
    result += c;
    if (c == '\n') result += "    ";
  }
  return result;
}

std::string message_of(const Line& line, int64_t rank, Format format) {
  const std::string text = printable_text(line.text);
  if (format == Format::json) {
    return "\"rank\":" + std::to_string(rank) + (line.epoch < 0 ? "" : ",\"epoch\":" + std::to_string(line.epoch)) +
           (line.step < 0 ? "" : ",\"step\":" + std::to_string(line.step)) + ",\"text\":" + nlohmann::json(text).dump();
  }
  return "rank " + std::to_string(rank) + (line.epoch < 0 ? "" : ", epoch " + std::to_string(line.epoch)) +
         (line.step < 0 ? "" : ", step " + std::to_string(line.step)) + ": " + indented(text);
}

// Programs that this one starts must not hold the file open.
spdlog::file_event_handlers not_inherited() {
  spdlog::file_event_handlers handlers;
  handlers.after_open = [](const spdlog::filename_t& /*name*/, std::FILE* file) {
    ::fcntl(::fileno(file), F_SETFD, FD_CLOEXEC);
  };
  return handlers;
}

// spdlog ends its text with the system's: "Failed opening file x for writing: Permission denied".
std::string cause_of(const spdlog::spdlog_ex& error) {
  const std::string text = error.what();
  const size_t colon = text.rfind(": ");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

constexpr size_t kMaxWaiting = 1000;  // lines before the folder is known

std::atomic<int64_t> position_epoch = -1;
std::atomic<int64_t> position_step = -1;
std::atomic<ConsoleOutput> console_output = nullptr;

struct State {
  std::mutex mutex = {};
  std::array<Levels, 3> levels = {};  // by Source
  std::array<std::optional<Format>, 3> formats = {};
  std::unique_ptr<LogFile> file = nullptr;
  std::string path = "";  // of the open file, or of the one that could not be opened
  int64_t opened = 0;     // how many files were
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
  const ConsoleOutput output = console_output.load();
  if (output != nullptr) output(level, component, text);
}

Line line_now(const std::string& component, Level level, std::string text) {
  return {std::chrono::system_clock::now(),
          level,
          component,
          position_epoch.load(std::memory_order_relaxed),
          position_step.load(std::memory_order_relaxed),
          std::move(text)};
}

// The run continues without a line that cannot be written (a full disk, a removed folder). Returns a problem to report.
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
           " The run continues; lines are missing until it can be written.";
  }
}

std::string keep_or_write(State& now, Line line) {
  if (now.file != nullptr) return put_line(now, line);
  if (!now.path.empty()) return "";  // it could not be opened, which was reported
  if (now.waiting.size() == kMaxWaiting) {
    now.waiting.pop_front();
    ++now.left_out;
  }
  now.waiting.push_back(std::move(line));
  return "";
}

std::string open_file(State& now, const std::string& path, int64_t rank, const LogOptions& options) {
  now.file.reset();
  now.path = path;
  ++now.opened;
  now.lost = 0;
  now.reported = false;
  Format format = Format::text;
  for (const auto& one : now.formats) format = one.value_or(format);
  try {
    now.file = std::make_unique<LogFile>(path, rank, format, options);
  } catch (const std::exception& error) {
    now.waiting.clear();
    return std::string("the log of the run: ") + error.what() + " The run continues without this file.";
  }
  std::string problem;
  const auto put = [&](const Line& line) {
    if (const std::string found = put_line(now, line); !found.empty()) problem = found;
  };
  if (const int64_t count = std::exchange(now.left_out, 0); count > 0) {
    put(line_now("logger", Level::warn,
                 std::to_string(count) + " earlier lines are left out: at most " + std::to_string(kMaxWaiting) +
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

const char* level_name(Level level) {
  return kLevelNames[static_cast<size_t>(level) + (level > Level::warn ? 1 : 0)].first;
}

namespace detail {

Slot& slot_of(const std::string& name) {
  std::string clean = name;
  std::replace_if(
      clean.begin(), clean.end(),
      [](unsigned char c) { return std::isalnum(c) == 0 && c != '_' && c != '.' && c != '-'; }, '_');
  Slots& known = slots();
  const std::lock_guard lock(known.mutex);
  for (Slot* slot : known.all) {
    if (clean == slot->name) return *slot;
  }
  known.own.push_back(std::make_unique<Slots::Own>(clean));
  known.all.push_back(&known.own.back()->slot);
  return known.own.back()->slot;
}

}  // namespace detail

std::vector<std::string> component_names() {
  Slots& known = slots();
  const std::lock_guard lock(known.mutex);
  std::vector<std::string> names;
  for (const detail::Slot* slot : known.all) names.emplace_back(slot->name);
  std::sort(names.begin(), names.end());
  return names;
}

Levels parse_levels(const std::string& text, const std::string& source) {
  Levels levels;
  for (const std::string& part : split(text, ',')) {
    const std::string item = trimmed(part);
    if (!item.empty()) read_item(item, source, levels);
  }
  return levels;
}

void apply_levels(const std::vector<Levels>& all) {
  Slots& known = slots();
  const std::lock_guard lock(known.mutex);
  for (detail::Slot* slot : known.all) {
    Level level = Level::info;
    for (const Levels& levels : all) {
      if (levels.all) level = *levels.all;
      for (const auto& [name, own] : levels.components) {
        if (name == slot->name) level = own;
      }
    }
    slot->level.store(level, std::memory_order_relaxed);
    slot->echoes.store(level < Level::info, std::memory_order_relaxed);
  }
}

struct LogFile::Sink {
  spdlog::sinks::rotating_file_sink_st file;
};

std::string file_name(int64_t rank) {
  return rank == 0 ? "run.log" : "run.rank" + std::to_string(rank) + ".log";
}

bool is_log_file(const std::string& name) {
  if (!name.starts_with("run.") || !name.ends_with("log")) return false;
  std::string middle = name.substr(4, name.size() - 7);  // "", "2.", "rank1.", "rank1.2."
  if (middle.starts_with("rank")) middle.erase(0, 4);
  return middle.find_first_not_of("0123456789.") == std::string::npos;
}

LogFile::LogFile(const std::string& path, int64_t rank, Format format, const LogOptions& options)
    : path_(path), rank_(rank), format_(format) {
  // spdlog tries for 50 ms to open a file that cannot be opened, and does not name a folder that it cannot create.
  std::error_code code;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), code);
  if (code) throw Error("cannot write " + path + ": " + code.message() + ".");
  ::close(open_regular_file(path, O_WRONLY | O_CREAT | O_APPEND));  // spdlog would follow a link
  try {
    // spdlog does not count the current file.
    sink_ = std::shared_ptr<Sink>(new Sink{{path, static_cast<size_t>(options.max_bytes),
                                            static_cast<size_t>(options.max_files - 1), false, not_inherited()}});
    sink_->file.set_formatter(std::make_unique<spdlog::pattern_formatter>(
        format == Format::json ? kJsonPattern : kTextPattern, spdlog::pattern_time_type::local, "\n"));
  } catch (const spdlog::spdlog_ex& error) {
    throw Error("cannot write " + path + ": " + cause_of(error) + ".");
  }
}

LogFile::~LogFile() = default;

void LogFile::write(const Line& line) {
  const std::string message = message_of(line, rank_, format_);
  try {
    sink_->file.log(
        spdlog::details::log_msg(line.time, spdlog::source_loc{}, line.component, spdlog_level(line.level), message));
    sink_->file.flush();  // a run that is killed leaves its last line
  } catch (const spdlog::spdlog_ex& error) {
    throw Error("cannot write " + path_ + ": " + cause_of(error) + ".");
  }
}

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

int64_t open(const std::string& folder, int64_t rank, const LogOptions& options) {
  const LogOptions good = checked(options, "log");
  set_levels(good.level, Source::options);
  set_format(good.format, Source::options);
  const std::string path = folder + "/" + file_name(rank);
  std::string problem;
  int64_t number = 0;
  {
    State& now = state();
    const std::lock_guard lock(now.mutex);
    if (now.path != path) problem = open_file(now, path, rank, good);
    number = now.opened;
  }
  if (!problem.empty()) show(Level::warn, "logger", problem);
  return number;
}

void close(std::optional<int64_t> number) {
  State& now = state();
  std::string problem;
  {
    const std::lock_guard lock(now.mutex);
    if (number && *number != now.opened) return;
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

void set_console_output(ConsoleOutput output) {
  console_output.store(output);
}

}  // namespace levin::log
