// What `levin top` shows of a run, as lines of text with styles: the same on every terminal, and without one in tests.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "levin/cli/runs/metrics_reader.h"
#include "levin/cli/runs/run_folder.h"

namespace levin {

// --- A curve drawn with braille characters, each of which has two by four dots.

/// A plot as rows of text, with the ranges of both axes.
struct BraillePlot {
  std::vector<std::string> rows = {};  // from top to bottom, all of the same number of characters
  double low = 0;                      // the value at the bottom, and at the top
  double high = 0;
  int64_t first = 0;  // the step at the left, and at the right
  int64_t last = 0;
};

/// Draws a curve of `columns` by `rows` characters. A column of dots covers all values that fall into it, so that no
/// peak is lost. Values that are not finite leave a gap. `rows` is empty if no value is finite, or without room.
[[nodiscard]] BraillePlot braille_plot(const std::vector<int64_t>& steps, const std::vector<double>& values,
                                       int columns, int rows);

enum class TopStyle { plain, title, faint, good, bad, curve, chosen, part0, part1, part2, part3, part4, part5 };

/// Text in one style.
struct TopPiece {
  std::string text;
  TopStyle style = TopStyle::plain;
};

using TopLine = std::vector<TopPiece>;

/// Which metrics are drawn, and which of the curves the arrow keys change.
struct TopCurves {
  std::vector<std::string> names = {};
  size_t chosen = 0;
  bool are_of_user = false;  // the user has chosen one of them, so they stay
};

/// The metrics in the order in which they are offered: losses first, of training before others.
[[nodiscard]] std::vector<std::string> metrics_in_order(const std::map<std::string, MetricSeries>& series);

/// Makes `curves` the first `count` metrics; once the user has chosen a metric, completes them with metrics that are
/// not drawn yet, and removes those beyond.
void choose_curves(TopCurves& curves, const std::vector<std::string>& metrics, size_t count);

/// Returns how many curves fit next to each other in this many columns.
[[nodiscard]] size_t curves_for(int columns);

/// At most `rows` lines of at most `columns` characters. `now`: seconds since 1970; `note`: a sentence for the last
/// line, or "".
[[nodiscard]] std::vector<TopLine> top_view(const RunRecord& run, const std::map<std::string, MetricSeries>& series,
                                            const TopCurves& curves, int columns, int rows, double now,
                                            const std::string& note);

/// One line for a log or a pipe: "12:03:01 running, epoch 3 of 10, step 1200, 31 %, train_loss 0.4295, …".
[[nodiscard]] std::string plain_line(const RunRecord& run, const std::map<std::string, MetricSeries>& series,
                                     double now);

/// Whether the run is active.
[[nodiscard]] inline bool is_active(const RunRecord& run) {
  return run.status == RunStatus::running;
}

/// "failed after 3 min 07 s: the error"
[[nodiscard]] std::string end_text(const RunRecord& run);

}  // namespace levin
