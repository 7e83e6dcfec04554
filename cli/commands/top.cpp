// Compiled by itself: curses defines short names.
#include "levin/cli/commands/top.h"

#define NCURSES_NOMACROS 1
#define NCURSES_WIDECHAR 1
#include <langinfo.h>
#include <ncurses.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <clocale>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>

#include "levin/cli/commands/help_text.h"
#include "levin/cli/commands/report.h"
#include "levin/cli/commands/top_view.h"
#include "levin/cli/config/arguments.h"
#include "levin/cli/runs/metrics_reader.h"
#include "levin/cli/runs/run_folder.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/main_guard.h"
#include "levin/core/process/this_process.h"

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

// A terminal that was closed can be read at once, but gives no key; a process without it as its controlling terminal
// gets no signal.
bool is_closed(int terminal) {
  pollfd state{terminal, POLLIN, 0};
  return ::poll(&state, 1, 0) > 0 && (state.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
}

// A terminal that lines are drawn on and keys are read from.
enum class TopKey { none, quit, left, right, up, down, resized };

class TopScreen {
 public:
  // Takes the terminal; the destructor restores it. Uses no colours if NO_COLOR is set. Throws Error if
  // the terminal (TERM) is not known.
  TopScreen();
  ~TopScreen();
  TopScreen(const TopScreen&) = delete;
  TopScreen& operator=(const TopScreen&) = delete;

  [[nodiscard]] int columns() const;
  [[nodiscard]] int rows() const;

  void draw(const std::vector<TopLine>& lines);

  // Waits up to `milliseconds` for a key. A terminal that was closed means quit.
  [[nodiscard]] TopKey wait(int milliseconds);

 private:
  struct Curses;
  std::unique_ptr<Curses> curses_;
};

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
    default: return is_closed(STDIN_FILENO) ? TopKey::quit : TopKey::none;
  }
}

// Whether levin top can draw here: standard input and output are a terminal, and TERM is not "dumb".
bool has_screen() {
  const char* term = std::getenv("TERM");
  const bool dumb = term == nullptr || *term == '\0' || std::strcmp(term, "dumb") == 0;
  return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1 && !dumb;
}

std::string top_usage(int width) {
  return "levin top [RUN] [options]\n\n" +
         wrapped(
             "Shows a live run: its progress, rates and time, curves of its metrics and all its ranks. RUN is the "
             "folder of a run (levin_logs/version_0), or a folder above several, whose newest run is taken; without "
             "it the working directory. q quits, ← and → choose a curve, ↑ and ↓ its metric. Where standard output "
             "is not a terminal, one line is printed each time until the run ends.",
             width) +
         "\n" + own_options_table(describe_options<TopOptions>(), width);
}

// The run that is looked at, and why it is this one.
struct ChosenRun {
  std::string folder;
  std::string note;
};

ChosenRun choose_run(const std::string& folder) {
  std::error_code code;
  if (!std::filesystem::exists(folder, code)) {
    throw Error("levin top: no folder " + cut_text(folder, 300) +
                ". Give the folder of a run, such as levin_logs/version_0, or one above it.");
  }
  if (is_run_folder(folder)) return {folder, ""};
  const FoundRuns found = find_run_folders(folder);
  if (found.folders.empty()) {
    throw Error("levin top: no run is in " + cut_text(folder, 300) +
                ": the folder of a run has a run.json, or metrics.csv and hparams.yaml, and none was found in it or "
                "below. A run makes its folder when it starts.");
  }
  std::string newest = found.folders.back();  // of those without a time the last by name
  double started = -1;
  for (const auto& one : found.folders) {
    const RunRecord record = read_run_record(one);
    if (record.started < started || std::isnan(record.started)) continue;
    started = record.started;
    newest = one;
  }
  if (found.folders.size() == 1) return {newest, "the only run in " + folder + " is " + newest};
  const auto count = static_cast<int64_t>(found.folders.size());
  return {newest, "the newest of " + count_of(count, "run") + " in " + folder + " is " + newest};
}

int show_lines(const ChosenRun& chosen, double every) {
  Console& console = Console::instance();
  MetricsReader metrics(chosen.folder);
  if (!chosen.note.empty()) console.print(chosen.note);
  while (true) {
    const RunRecord run = read_run_record(chosen.folder);  // before the metrics: an ended run has written them all
    metrics.update();
    console.print(plain_line(run, metrics.series(), seconds_since_1970()));
    if (!is_active(run)) {
      console.print("the run has ended: " + end_text(run));
      return kExitOk;
    }
    if (!console.output_problem().empty()) return kExitOk;  // "levin top RUN | head"
    std::this_thread::sleep_for(std::chrono::duration<double>(every));
  }
}

void change_curve(TopCurves& curves, const std::vector<std::string>& metrics, TopKey key) {
  if (curves.names.empty() || metrics.empty()) return;
  const size_t count = curves.names.size();
  if (key == TopKey::left) curves.chosen = (curves.chosen + count - 1) % count;
  if (key == TopKey::right) curves.chosen = (curves.chosen + 1) % count;
  if (key != TopKey::up && key != TopKey::down) return;
  curves.are_of_user = true;
  std::string& name = curves.names[curves.chosen];
  const auto found = std::find(metrics.begin(), metrics.end(), name);
  const auto at = static_cast<size_t>(found == metrics.end() ? 0 : found - metrics.begin());
  name = metrics[(at + (key == TopKey::down ? 1 : metrics.size() - 1)) % metrics.size()];
}

int show_screen(const ChosenRun& chosen, double every) {
  using Clock = std::chrono::steady_clock;
  MetricsReader metrics(chosen.folder);
  TopScreen screen;
  TopCurves curves;
  RunRecord run;
  std::vector<std::string> names;
  auto next_look = Clock::now();
  while (true) {
    const auto now = Clock::now();
    if (now >= next_look) {
      run = read_run_record(chosen.folder);
      metrics.update();
      names = metrics_in_order(metrics.series());
      next_look = now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(every));
    }
    choose_curves(curves, names, std::min(curves_for(screen.columns()), std::max<size_t>(1, names.size())));
    const std::string note = is_active(run) ? chosen.note : "the run has ended: " + end_text(run);
    screen.draw(top_view(run, metrics.series(), curves, screen.columns(), screen.rows(), seconds_since_1970(), note));
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next_look - Clock::now()).count();
    const TopKey key = screen.wait(static_cast<int>(std::clamp<int64_t>(left, 1, 1000)));
    if (key == TopKey::quit) return kExitOk;
    change_curve(curves, names, key);
  }
}

}  // namespace

int run_top(const std::vector<std::string>& arguments, int width) {
  Problems problems;
  TopOptions options;
  const SplitArguments read = read_own_options(arguments, options, problems);
  if (read.help) return print_usage(top_usage(width));
  refuse_rest(read.rest, own_options(TopOptions::fields()), 1, "a second run. Give one folder.", problems);
  if (!problems.empty()) return report_problems(problems, "nothing is shown. See levin top --help.");
  const ChosenRun chosen = choose_run(read.rest.empty() ? "." : read.rest[0]);
  return options.plain || !has_screen() ? show_lines(chosen, options.every) : show_screen(chosen, options.every);
}

}  // namespace levin
