// Compiled without LibTorch's include folder; see CMakeLists.txt.
#include "levin/core/log_file.h"

#include <fcntl.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "levin/core/error.h"
#include "levin/core/files.h"
#include "levin/core/utf8.h"

namespace levin::log {

namespace {

spdlog::level::level_enum spdlog_level(Level level) {
  return static_cast<spdlog::level::level_enum>(level);
}
static_assert(static_cast<int>(Level::trace) == SPDLOG_LEVEL_TRACE &&
              static_cast<int>(Level::warn) == SPDLOG_LEVEL_WARN);
static_assert(static_cast<int>(Level::error) == SPDLOG_LEVEL_ERROR);

// spdlog escapes nothing: the text of a JSON line is prepared here, and %v is the rest of the object.
constexpr const char* kTextPattern = "%Y-%m-%d %H:%M:%S.%e %-7l %-10n %v";
constexpr const char* kJsonPattern = R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","component":"%n",%v})";

std::string json_string(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\t') {
      quoted += "\\t";
    } else {
      quoted += c;  // printable_text has escaped the other control characters
    }
  }
  return quoted + "\"";
}

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
           (line.step < 0 ? "" : ",\"step\":" + std::to_string(line.step)) + ",\"text\":" + json_string(text);
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

}  // namespace

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
    // spdlog counts the files beside the current one.
    sink_ = std::unique_ptr<Sink>(new Sink{{path, static_cast<size_t>(options.max_bytes),
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

}  // namespace levin::log
