// Compiled by itself: curses defines short names.
#include "levin/cli/commands/top_screen.h"

#define NCURSES_NOMACROS 1
#define NCURSES_WIDECHAR 1
#include <langinfo.h>
#include <ncurses.h>
#include <unistd.h>

#include <array>
#include <clocale>
#include <cstdlib>
#include <cstring>

#include "levin/core/error.h"

namespace levin {

namespace {

// Curses writes UTF-8 only in a locale that has it.
void use_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(::nl_langinfo(CODESET), "UTF-8") == 0) return;
  if (std::setlocale(LC_CTYPE, "C.UTF-8") == nullptr) std::setlocale(LC_CTYPE, "en_US.UTF-8");
}

bool wants_colors() {
  const char* no_color = std::getenv("NO_COLOR");
  return (no_color == nullptr || *no_color == '\0') && ::has_colors();
}

struct Look {
  short color;  // -1: the terminal's own
  attr_t attributes;
};

constexpr std::array<Look, 13> kLooks{{
    {-1, A_NORMAL},           // plain
    {-1, A_BOLD},             // title
    {-1, A_DIM},              // faint
    {COLOR_GREEN, A_NORMAL},  // good
    {COLOR_RED, A_BOLD},      // bad
    {COLOR_CYAN, A_NORMAL},   // curve
    {COLOR_YELLOW, A_BOLD},   // chosen
    {COLOR_GREEN, A_NORMAL},
    {COLOR_YELLOW, A_NORMAL},
    {COLOR_BLUE, A_NORMAL},
    {COLOR_MAGENTA, A_NORMAL},
    {COLOR_RED, A_NORMAL},
    {COLOR_WHITE, A_NORMAL},
}};

}  // namespace

struct TopScreen::Curses {
  SCREEN* screen = nullptr;
  bool colors = false;

  // Pair k + 1 is the colour of style k.
  [[nodiscard]] attr_t look_of(TopStyle style) const {
    const auto k = static_cast<size_t>(style);
    attr_t look = kLooks[k].attributes;
    if (colors && kLooks[k].color >= 0) look |= static_cast<attr_t>(COLOR_PAIR(static_cast<int>(k) + 1));
    return look;
  }
};

TopScreen::TopScreen() : curses_(std::make_unique<Curses>()) {
  use_utf8();
  curses_->screen = ::newterm(nullptr, stdout, stdin);
  if (curses_->screen == nullptr) {
    const char* term = std::getenv("TERM");
    throw Error("levin top: the terminal \"" + cut_text(term == nullptr ? "" : term) +
                "\" (TERM) is not known here. Set TERM to one that is, such as xterm, or use --plain.");
  }
  ::cbreak();
  ::noecho();
  ::keypad(stdscr, true);
  ::curs_set(0);
  curses_->colors = wants_colors();
  if (!curses_->colors) return;
  ::start_color();
  ::use_default_colors();
  for (size_t k = 0; k < kLooks.size(); ++k) ::init_pair(static_cast<short>(k + 1), kLooks[k].color, -1);
}

TopScreen::~TopScreen() {
  ::endwin();
  ::delscreen(curses_->screen);
}

int TopScreen::columns() const {
  return ::getmaxx(stdscr);
}

int TopScreen::rows() const {
  return ::getmaxy(stdscr);
}

void TopScreen::draw(const std::vector<TopLine>& lines) {
  ::werase(stdscr);
  for (size_t row = 0; row < lines.size(); ++row) {
    ::wmove(stdscr, static_cast<int>(row), 0);
    for (const TopPiece& piece : lines[row]) {
      ::wattrset(stdscr, static_cast<int>(curses_->look_of(piece.style)));
      ::waddnstr(stdscr, piece.text.c_str(), -1);
    }
  }
  ::wattrset(stdscr, A_NORMAL);
  ::wrefresh(stdscr);
}

TopKey TopScreen::wait(int milliseconds) {
  ::wtimeout(stdscr, milliseconds);
  switch (::wgetch(stdscr)) {
    case 'q':
    case 'Q': return TopKey::quit;
    case KEY_LEFT: return TopKey::left;
    case '\t':
    case KEY_RIGHT: return TopKey::right;
    case KEY_UP: return TopKey::up;
    case KEY_DOWN: return TopKey::down;
    case KEY_RESIZE: return TopKey::resized;
    default: return TopKey::none;
  }
}

bool has_screen() {
  const char* term = std::getenv("TERM");
  const bool dumb = term == nullptr || *term == '\0' || std::strcmp(term, "dumb") == 0;
  return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1 && !dumb;
}

}  // namespace levin
