#include "levin/core/process/console.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <set>

#include "levin/core/options/registry.h"
#include "levin/core/options/utf8.h"
#include "levin/core/process/log.h"

namespace levin {

namespace {

// This and the other objects here are never destroyed: destructors of static objects may print.
std::recursive_mutex& mutex() {
  static auto* const m = new std::recursive_mutex;
  return *m;
}

bool live_lines_work() {
  const char* term = std::getenv("TERM");
  const bool dumb = term == nullptr || std::string(term) == "dumb";
  return ::isatty(STDOUT_FILENO) == 1 && !dumb;
}

// https://no-color.org
bool wants_no_color() {
  const char* no_color = std::getenv("NO_COLOR");
  return no_color != nullptr && *no_color != '\0';
}

// Cuts to `columns` characters of UTF-8 and at a line's end, so that a live line never takes two rows.
std::string cut(const std::string& text, int columns) {
  int used = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') return text.substr(0, i);
    const bool starts_character = (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
    if (starts_character && ++used > columns) return text.substr(0, i);
  }
  return text;
}

spdlog::logger& logger() {
  static auto* const made = [] {
    const auto mode = wants_no_color() ? spdlog::color_mode::never : spdlog::color_mode::automatic;
    auto* log = new spdlog::logger("levin", std::make_shared<spdlog::sinks::stderr_color_sink_mt>(mode));
    log->set_pattern("%^%l%$: %v");
    log->set_level(spdlog::level::trace);
    return log;
  }();
  return *made;
}

// Returns true if the warning is not among the latest ones that were shown. A run may warn in every step with another
// text, so that a list of all of them would grow forever.
bool is_new(const std::string& text) {
  constexpr size_t kMaxRemembered = 1000;
  static auto* const shown = new std::set<std::string>;
  static auto* const oldest_first = new std::deque<std::set<std::string>::const_iterator>;
  const auto [place, is_inserted] = shown->insert(text);
  if (!is_inserted) return false;
  oldest_first->push_back(place);
  if (oldest_first->size() > kMaxRemembered) {
    shown->erase(oldest_first->front());
    oldest_first->pop_front();
  }
  return true;
}

using ShowLine = void (*)(const std::string& level, const std::string& text);
ShowLine show_line = nullptr;

// Lets parts of the library that may not include this header print. The log shows warnings and errors without, and
// other lines with the name of their component.
[[maybe_unused]] const bool is_installed = [] {
  detail::print_alias_note = [](const std::string& text) { Console::instance().warn(text); };
  log::set_console_output([](log::Level level, const std::string& component, const std::string& text) {
    Console::instance();  // sets show_line
    show_line(log::level_name(level), level >= log::Level::warn ? text : component + ": " + text);
  });
  return true;
}();

}  // namespace

Console& Console::instance() {
  static auto* const console = new Console;
  return *console;
}

Console::Console() : is_terminal_(live_lines_work()) {
  show_line = [](const std::string& level, const std::string& text) {
    Console& console = instance();
    const std::lock_guard lock(mutex());
    if (console.sink_ || level != "warning" || is_new(text)) console.write_line(level, text);
  };
}

int Console::width() const {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

void Console::set_rank(int rank) {
  const std::lock_guard lock(mutex());
  rank_ = rank;
}

int Console::rank() const {
  const std::lock_guard lock(mutex());
  return rank_;
}

void Console::clear_live() {
  if (is_terminal_ && !live_.empty()) std::fputs("\r\x1b[2K", stdout);
}

void Console::flush() {
  if (std::fflush(stdout) != 0 && output_error_ == 0) output_error_ = errno;
}

void Console::draw_live() {
  if (is_terminal_ && !live_.empty()) std::fputs(cut(live_, width() - 1).c_str(), stdout);
  flush();
}

void Console::print(const std::string& text) {
  const std::lock_guard lock(mutex());
  if (rank_ != 0) return;
  const std::string shown = printable_text(text);
  if (sink_) return sink_(shown);
  clear_live();
  if (std::fputs((shown + "\n").c_str(), stdout) < 0 && output_error_ == 0) output_error_ = errno;
  draw_live();
}

std::string Console::output_problem() const {
  const std::lock_guard lock(mutex());
  return output_error_ == 0 ? "" : std::strerror(output_error_);
}

void Console::live(const std::string& text) {
  const std::lock_guard lock(mutex());
  if (rank_ != 0 || !is_terminal_ || sink_) return;
  clear_live();
  live_ = printable_text(text);
  draw_live();
}

void Console::finish_live() {
  const std::lock_guard lock(mutex());
  if (is_terminal_ && !live_.empty()) std::fputs("\n", stdout);
  live_.clear();
  std::fflush(stdout);
}

void Console::write_line(const std::string& level, const std::string& text) {
  const std::string line = (rank_ == 0 ? "" : "rank " + std::to_string(rank_) + ": ") + printable_text(text);
  if (sink_) return sink_(level + ": " + line);
  clear_live();
  std::fflush(stdout);
  logger().log(spdlog::level::from_str(level), line);
  draw_live();
}

// Writes to the log first and without the lock: the log may have a warning of its own to show.
void Console::warn(const std::string& text) {
  log::console.record(log::Level::warn, text);
  const std::lock_guard lock(mutex());
  if (sink_ || is_new(text)) write_line("warning", text);
}

void Console::error(const std::string& text) {
  log::console.record(log::Level::error, text);
  const std::lock_guard lock(mutex());
  write_line("error", text);
}

void Console::capture(std::function<void(const std::string&)> sink) {
  const std::lock_guard lock(mutex());
  sink_ = std::move(sink);
}

}  // namespace levin
