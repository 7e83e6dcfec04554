// Everything a run prints: lines, warnings and one live line (a progress bar) that stays at the bottom of a terminal
// and is omitted elsewhere. Thread-safe. Quiet on ranks other than 0.
#pragma once

#include <functional>
#include <string>

namespace levin {

/// Process-wide. Texts may contain untrusted names and values: terminal control characters are shown as escapes
/// ("\x1b"), see printable_text; newlines and tabs are kept. Lines go to standard output, warnings and errors to
/// standard error through spdlog.
class Console {
 public:
  static Console& instance();

  /// Prints `text` and a newline; a live line is cleared before and drawn again after.
  void print(const std::string& text);

  /// "warning: text", on standard error; the same text is printed once per process.
  void warn(const std::string& text);
  void error(const std::string& text);

  /// Shows `text` in place of the last live line (terminal only; cut to its width). "" removes it.
  void live(const std::string& text);

  /// Leaves the live line where it is and moves below it.
  void finish_live();

  /// Whether live lines are shown: standard output is a terminal and TERM is not "dumb". NO_COLOR only turns off the
  /// colour of warnings and errors.
  [[nodiscard]] bool is_terminal() const { return is_terminal_; }

  /// Columns of the terminal; 80 if unknown.
  [[nodiscard]] int width() const;

  /// Ranks other than 0 stay quiet: print and live do nothing, warn and error still print, with "rank N: ".
  void set_rank(int rank);

  /// Why output of print() has not reached standard output ("No space left on device"); "" if it has.
  [[nodiscard]] std::string output_problem() const;

  /// For tests: everything printed goes to `sink` (text without newline) instead; {} restores the streams. A sink
  /// receives every warning, even a repeated one, so that tests do not depend on each other.
  void capture(std::function<void(const std::string&)> sink);

 private:
  Console();
  void draw_live();
  void clear_live();
  void speak(const std::string& level, const std::string& text);
  void flush();

  bool is_terminal_;
  int rank_ = 0;
  int output_error_ = 0;  // of the first write to standard output that failed
  std::string live_;
  std::function<void(const std::string&)> sink_;
};

}  // namespace levin
