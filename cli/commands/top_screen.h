// A terminal that lines are drawn on and keys are read from: curses, for levin top.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "levin/cli/commands/top_view.h"

namespace levin {

enum class TopKey { none, quit, left, right, up, down, resized };

class TopScreen {
 public:
  /// Takes the terminal; the destructor gives it back as it was. Without colours where NO_COLOR is set. Throws Error if
  /// the terminal (TERM) is not known.
  TopScreen();
  ~TopScreen();
  TopScreen(const TopScreen&) = delete;
  TopScreen& operator=(const TopScreen&) = delete;

  [[nodiscard]] int columns() const;
  [[nodiscard]] int rows() const;

  void draw(const std::vector<TopLine>& lines);

  /// The next key, for at most so many milliseconds.
  [[nodiscard]] TopKey wait(int milliseconds);

 private:
  struct Curses;
  std::unique_ptr<Curses> curses_;
};

/// Whether levin top can draw here: standard input and output are a terminal, and TERM is not "dumb".
[[nodiscard]] bool has_screen();

}  // namespace levin
