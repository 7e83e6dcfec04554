// Everything that a run prints: lines, warnings and one live line (a progress bar), which stays at the bottom of a
// terminal and is omitted elsewhere.
#pragma once

#include <functional>
#include <string>

namespace levin {

/// The console of the process. Strings may contain untrusted names and values: terminal control characters are shown as
/// escapes ("\x1b", see printable_text); newlines and tabs are kept. Lines go to standard output, warnings and errors
/// to standard error through spdlog. Thread-safe; ranks other than 0 print only warnings and errors.
class Console {
 public:
  static Console& instance();

  /// Prints `text` and a newline above the live line.
  void print(const std::string& text);

  /// Prints "warning: text" on standard error; the same text only once, unless 1000 other warnings have followed it.
  /// Also writes it to the run's log.
  void warn(const std::string& text);
  /// Prints "error: text" on standard error, and writes it to the run's log.
  void error(const std::string& text);

  /// Replaces the live line by `text`, cut to the width of the terminal; "" removes it. Does nothing without a
  /// terminal.
  void live(const std::string& text);

  /// Ends the live line: it stays on the screen, and the next output follows below it.
  void finish_live();

  /// Returns true if live lines are shown: standard output is a terminal and TERM is not "dumb". NO_COLOR only turns
  /// off the colour of warnings and errors.
  [[nodiscard]] bool is_terminal() const { return is_terminal_; }

  /// Returns the number of the terminal's columns; 80 if unknown.
  [[nodiscard]] int width() const;

  /// On ranks other than 0, print and live do nothing, and warnings and errors begin with "rank N: ".
  void set_rank(int rank);
  [[nodiscard]] int rank() const;

  /// Returns why the output of print() has not reached standard output ("No space left on device"); "" if it has.
  [[nodiscard]] std::string output_problem() const;

  /// For tests: sends everything that is printed to `sink` (without the newline) instead; {} restores the streams. A
  /// sink receives every warning, even a repeated one, so that tests do not depend on each other.
  void capture(std::function<void(const std::string&)> sink);

 private:
  Console();
  void draw_live();
  void clear_live();
  void write_line(const std::string& level, const std::string& text);
  void flush();

  bool is_terminal_;
  int rank_ = 0;
  int output_error_ = 0;  // errno of the first failed write to standard output
  std::string live_;
  std::function<void(const std::string&)> sink_;
};

}  // namespace levin
