#include "levin/cli/commands/top_view.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <limits>
#include <utility>

#include "levin/cli/config/text_layout.h"
#include "levin/cli/runs/html.h"
#include "levin/core/options/error.h"
#include "levin/core/options/units.h"

namespace levin {

namespace {

// Dots of one character, U+2800 + bits, by row and column.
constexpr std::array<std::array<unsigned, 2>, 4> kDots{{{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}};

std::string braille_character(unsigned dots) {
  const unsigned code = 0x2800 + dots;
  return {static_cast<char>(0xe0 | (code >> 12)), static_cast<char>(0x80 | ((code >> 6) & 0x3f)),
          static_cast<char>(0x80 | (code & 0x3f))};
}

// What the values in one column of dots cover.
struct DotColumn {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  double entry = 0;  // the first value, and the last one
  double exit = 0;
  bool after_gap = false;  // the line from the column before is broken
  [[nodiscard]] bool empty() const { return low > high; }
};

class Dots {
 public:
  Dots(int columns, int rows)
      : columns_(columns), rows_(rows), cells_(static_cast<size_t>(columns) * static_cast<size_t>(rows), 0) {}

  [[nodiscard]] int width() const { return columns_ * 2; }
  [[nodiscard]] int height() const { return rows_ * 4; }

  void set(int x, int y) {
    if (x < 0 || y < 0 || x >= width() || y >= height()) return;
    const size_t cell = static_cast<size_t>(y / 4) * static_cast<size_t>(columns_) + static_cast<size_t>(x / 2);
    cells_[cell] |= kDots[static_cast<size_t>(y % 4)][static_cast<size_t>(x % 2)];
  }

  void vertical(int x, int from, int to) {
    for (int y = std::min(from, to); y <= std::max(from, to); ++y) set(x, y);
  }

  // Steep parts are drawn without gaps.
  void line(int x0, int y0, int x1, int y1) {
    int before = y0;
    for (int x = x0 + 1; x <= x1; ++x) {
      const int y = y0 + static_cast<int>(std::lround(static_cast<double>(y1 - y0) * (x - x0) / (x1 - x0)));
      vertical(x, before + (y > before ? 1 : y < before ? -1 : 0), y);
      before = y;
    }
  }

  [[nodiscard]] std::vector<std::string> text() const {
    std::vector<std::string> lines;
    for (int row = 0; row < rows_; ++row) {
      std::string line;
      for (int column = 0; column < columns_; ++column) {
        line += braille_character(
            cells_[static_cast<size_t>(row) * static_cast<size_t>(columns_) + static_cast<size_t>(column)]);
      }
      lines.push_back(std::move(line));
    }
    return lines;
  }

 private:
  int columns_;
  int rows_;
  std::vector<unsigned> cells_;
};

std::vector<DotColumn> dot_columns(const std::vector<int64_t>& steps, const std::vector<double>& values, size_t count,
                                   const BraillePlot& plot, int width) {
  std::vector<DotColumn> columns(static_cast<size_t>(width));
  const double span = std::max<double>(1, static_cast<double>(plot.last) - static_cast<double>(plot.first));
  bool gap = true;
  for (size_t k = 0; k < count; ++k) {
    if (!std::isfinite(values[k])) {
      gap = true;
      continue;
    }
    const double at = (static_cast<double>(steps[k]) - static_cast<double>(plot.first)) / span;
    DotColumn& column = columns[static_cast<size_t>(std::clamp(std::lround(at * (width - 1)), 0L, width - 1L))];
    if (column.empty()) {
      column.entry = values[k];
      column.after_gap = gap;
    }
    column.low = std::min(column.low, values[k]);
    column.high = std::max(column.high, values[k]);
    column.exit = values[k];
    gap = false;
  }
  return columns;
}

constexpr int kLabel = 9;  // columns of a curve's labels
constexpr std::array kPartMarks{"█", "▓", "▒", "░", "▞", "·"};

int width_of(const std::string& text) {
  return static_cast<int>(text_width(text));
}

std::string repeated(const std::string& mark, int count) {
  std::string text;
  for (int k = 0; k < count; ++k) text += mark;
  return text;
}

std::string cut_to(const std::string& text, int columns) {
  return text.substr(0, bytes_of_columns(text, static_cast<size_t>(std::max(0, columns))));
}

std::string column_text(const std::string& text, int columns) {
  return padded_to(cut_to(text, columns), static_cast<size_t>(columns));
}

std::string memory_text(double bytes) {
  return bytes >= 0 ? bytes_text(static_cast<uint64_t>(bytes)) : "-";
}

std::string whole_percent(double share) {
  return std::to_string(std::lround(std::clamp(share, 0.0, 1.0) * 100)) + " %";
}

std::string span_text(double seconds) {
  return readable_duration(Seconds(std::max(0.0, seconds)));
}

std::string of_limit(int64_t value, int64_t limit) {
  return std::to_string(value) + (limit > 0 ? " of " + std::to_string(limit) : "");
}

TopStyle status_style(RunStatus status) {
  if (status == RunStatus::running || status == RunStatus::success) return TopStyle::good;
  return status == RunStatus::unknown ? TopStyle::faint : TopStyle::bad;
}

std::string status_text(const RunRecord& run) {
  return run.status == RunStatus::unknown ? "no longer active" : status_word(run.status);
}

// Adds a piece after two spaces; nothing for "".
void add(TopLine& line, const std::string& text, TopStyle style = TopStyle::plain) {
  if (text.empty()) return;
  if (!line.empty()) line.push_back({"  "});
  line.push_back({one_line_text(text), style});
}

double run_seconds(const RunRecord& run, double now) {
  RunRecord until = run;
  if (is_active(run) && !std::isnan(now)) until.updated = std::max(now, run.updated);
  return until.duration();
}

TopLine title_line(const RunRecord& run, double now) {
  TopLine line;
  add(line, run.name.empty() ? run.folder : run.name, TopStyle::title);
  add(line, run.command);
  add(line, status_text(run), status_style(run.status));
  if (const double seconds = run_seconds(run, now); !std::isnan(seconds)) add(line, span_text(seconds));
  std::string place = run.strategy;
  if (run.world_size > 1) place += (place.empty() ? "" : ", ") + count_of(run.world_size, "rank");
  for (const auto& part : {run.device, run.precision, run.host}) {
    if (!part.empty()) place += (place.empty() ? "" : ", ") + part;
  }
  add(line, place, TopStyle::faint);
  return line;
}

TopLine progress_line(const RunRecord& run, int columns) {
  TopLine line;
  if (run.epoch >= 0) add(line, "epoch " + of_limit(run.epoch, run.max_epochs));
  if (run.step >= 0) add(line, "step " + of_limit(run.step, run.max_steps));
  if (std::isnan(run.progress)) return line;
  std::string after = whole_percent(run.progress);
  if (is_active(run) && !std::isnan(run.remaining_seconds)) after += "  " + span_text(run.remaining_seconds) + " left";
  int used = width_of(after) + 2;
  for (const auto& piece : line) used += width_of(piece.text);
  const int room = std::clamp(columns - used - 2, 0, 40);
  if (room >= 8) {
    const int full = static_cast<int>(std::lround(std::clamp(run.progress, 0.0, 1.0) * room));
    line.push_back({"  "});
    line.push_back({repeated("█", full), TopStyle::good});
    line.push_back({repeated("░", room - full), TopStyle::faint});
  }
  add(line, after);
  return line;
}

TopLine rates_line(const RunRecord& run) {
  TopLine line;
  if (!std::isnan(run.batches_per_second)) add(line, short_number(run.batches_per_second) + " batches/s");
  if (!std::isnan(run.samples_per_second))
    add(line, grouped_number(std::llround(run.samples_per_second)) + " samples/s");
  if (run.skipped_steps > 0) add(line, count_of(run.skipped_steps, "skipped step"), TopStyle::bad);
  if (run.nonfinite_losses > 0)
    add(line, count_of(run.nonfinite_losses, "loss or gradient", "losses or gradients") + " not finite", TopStyle::bad);
  if (!run.monitor.empty() && !std::isnan(run.monitor_best)) {
    add(line, "best " + run.monitor + " " + short_number(run.monitor_best), TopStyle::good);
  }
  if (!run.checkpoints.empty()) add(line, count_of(static_cast<int64_t>(run.checkpoints.size()), "checkpoint"));
  return line;
}

TopStyle part_style(size_t part) {
  return static_cast<TopStyle>(static_cast<size_t>(TopStyle::part0) + part % kPartMarks.size());
}

// "time  ████▓▓▒  █ step 80 %  ▓ data 12 %": the largest first, each with a mark of its own, so that
// it reads without colours.
TopLine time_line(const RunRecord& run, int columns) {
  std::vector<std::pair<std::string, double>> parts = run.time_split;
  std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  double sum = 0;
  for (const auto& [name, seconds] : parts) sum += seconds > 0 ? seconds : 0;
  if (!(sum > 0)) return {};
  TopLine legend;
  int used = 0;
  for (size_t k = 0; k < parts.size(); ++k) {
    const auto& [name, seconds] = parts[k];
    if (!(seconds / sum >= 0.005)) continue;
    const std::string text = " " + one_line_text(name) + " " + whole_percent(seconds / sum);
    if (used + 3 + width_of(text) > columns - 6 - 10) break;
    used += 3 + width_of(text);
    legend.push_back({"  "});
    legend.push_back({kPartMarks[k % kPartMarks.size()], part_style(k)});
    legend.push_back({text});
  }
  const int bar = std::clamp(columns - 6 - used, 0, 40);
  TopLine line{{"time  "}};
  double before = 0;
  for (size_t k = 0; k < parts.size(); ++k) {
    const double after = before + std::max(0.0, parts[k].second);
    const auto at = [&](double seconds) { return static_cast<int>(std::lround(seconds / sum * bar)); };
    line.push_back({repeated(kPartMarks[k % kPartMarks.size()], at(after) - at(before)), part_style(k)});
    before = after;
  }
  line.insert(line.end(), legend.begin(), legend.end());
  return line;
}

// One curve of `columns` by `rows`: a title, the plot with its range, and the steps.
std::vector<TopLine> curve_lines(const std::string& name, const MetricSeries& metric, bool chosen, int columns,
                                 int rows) {
  std::vector<TopLine> lines;
  const double last = metric.values.empty() ? kUnknown : metric.values.back();
  const std::string value = metric.values.empty() ? "" : " " + short_number(last);
  const std::string title = cut_to(one_line_text(name), std::max(1, columns - width_of(value) - 2));
  lines.push_back({{(chosen ? "▸" : " ") + title, chosen ? TopStyle::chosen : TopStyle::title}, {value}});
  const int inner = rows - 2;
  const BraillePlot plot = braille_plot(metric.steps, metric.values, columns - kLabel - 1, inner);
  for (size_t row = 0; row < plot.rows.size(); ++row) {
    std::string label;
    if (row == 0) label = short_number(plot.high);
    if (row + 1 == plot.rows.size() && row > 0) label = short_number(plot.low);
    label = cut_to(label, kLabel - 1);
    lines.push_back({{repeated(" ", kLabel - 1 - width_of(label)) + label + " ", TopStyle::faint},
                     {plot.rows[row], TopStyle::curve}});
  }
  if (plot.rows.empty()) {
    lines.push_back({{" no finite value yet", TopStyle::faint}});
    return lines;
  }
  const std::string first = std::to_string(plot.first);
  const std::string end = std::to_string(plot.last);
  const int between = columns - 1 - kLabel - width_of(first) - width_of(end);
  lines.push_back(
      {{repeated(" ", kLabel) + first + (between > 0 ? repeated(" ", between) + end : ""), TopStyle::faint}});
  return lines;
}

int line_width(const TopLine& line) {
  int width = 0;
  for (const auto& piece : line) width += width_of(piece.text);
  return width;
}

TopLine cut_line(TopLine line, int columns) {
  int used = 0;
  for (auto& piece : line) {
    piece.text = cut_to(piece.text, columns - used);
    used += width_of(piece.text);
  }
  return line;
}

// The curves in one row.
std::vector<TopLine> curves_block(const std::map<std::string, MetricSeries>& series, const TopCurves& curves,
                                  int columns, int rows) {
  std::vector<TopLine> block(static_cast<size_t>(rows));
  if (curves.names.empty()) {
    block[0] = {{"No metric was written yet.", TopStyle::faint}};
    return block;
  }
  const int each = columns / static_cast<int>(curves.names.size());
  for (size_t k = 0; k < curves.names.size(); ++k) {
    const auto found = series.find(curves.names[k]);
    const MetricSeries metric = found == series.end() ? MetricSeries() : found->second;
    std::vector<TopLine> lines = curve_lines(curves.names[k], metric, k == curves.chosen, each, rows);
    lines.resize(block.size());
    for (size_t row = 0; row < block.size(); ++row) {
      TopLine part = cut_line(std::move(lines[row]), each);
      part.push_back({repeated(" ", each - line_width(part))});
      block[row].insert(block[row].end(), part.begin(), part.end());
    }
  }
  return block;
}

std::vector<TopLine> rank_lines(const RunRecord& run, int columns, int most) {
  std::vector<TopLine> lines;
  if (run.ranks.empty() || most < 2) return lines;
  int host = 4;
  int stage = 5;
  for (const auto& rank : run.ranks) {
    host = std::max(host, std::min(20, width_of(one_line_text(rank.host))));
    stage = std::max(stage, std::min(20, width_of(one_line_text(rank.stage))));
  }
  const auto line = [&](const std::string& rank, const std::string& where, const std::string& pid,
                        const std::string& doing, const std::string& memory, const std::string& peak) {
    return column_text(rank, 5) + column_text(where, host + 2) + column_text(pid, 9) + column_text(doing, stage + 2) +
           column_text(memory, 11) + peak;
  };
  lines.push_back({{cut_to(line("rank", "host", "process", "stage", "memory", "peak"), columns), TopStyle::faint}});
  const size_t room = static_cast<size_t>(most) - 1;
  const size_t count = run.ranks.size() <= room ? run.ranks.size() : room - 1;
  for (size_t k = 0; k < count; ++k) {
    const RunRank& rank = run.ranks[k];
    lines.push_back({{cut_to(
        line(std::to_string(rank.rank), one_line_text(rank.host), rank.pid > 0 ? std::to_string(rank.pid) : "-",
             one_line_text(rank.stage), memory_text(rank.memory_bytes), memory_text(rank.peak_memory_bytes)),
        columns)}});
  }
  if (count < run.ranks.size()) {
    lines.push_back(
        {{"… and " + count_of(static_cast<int64_t>(run.ranks.size() - count), "more rank"), TopStyle::faint}});
  }
  return lines;
}

int importance(const std::string& name) {
  const bool loss = name.find("loss") != std::string::npos;
  const bool training = name.starts_with("train") || name == "loss" || name.starts_with("loss_");
  if (loss) return training ? 0 : 1;
  return name.starts_with("lr-") ? 3 : 2;
}

}  // namespace

BraillePlot braille_plot(const std::vector<int64_t>& steps, const std::vector<double>& values, int columns, int rows) {
  BraillePlot plot;
  const size_t count = std::min(steps.size(), values.size());
  plot.low = std::numeric_limits<double>::infinity();
  plot.high = -plot.low;
  for (size_t k = 0; k < count; ++k) {
    if (!std::isfinite(values[k])) continue;
    plot.low = std::min(plot.low, values[k]);
    plot.high = std::max(plot.high, values[k]);
  }
  if (columns < 1 || rows < 1 || plot.low > plot.high) return {};
  const auto [first, last] = std::minmax_element(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(count));
  plot.first = *first;
  plot.last = *last;
  Dots dots(columns, rows);
  const double span = plot.high - plot.low;
  const auto row_of = [&](double value) {
    const double share = span > 0 && std::isfinite(span) ? (value - plot.low) / span : 0.5;
    return static_cast<int>(std::lround((1 - share) * (dots.height() - 1)));
  };
  const std::vector<DotColumn> drawn = dot_columns(steps, values, count, plot, dots.width());
  int before = -1;
  for (int x = 0; x < dots.width(); ++x) {
    const DotColumn& column = drawn[static_cast<size_t>(x)];
    if (column.empty()) continue;
    if (before >= 0 && !column.after_gap) {
      dots.line(before, row_of(drawn[static_cast<size_t>(before)].exit), x, row_of(column.entry));
    }
    dots.vertical(x, row_of(column.low), row_of(column.high));
    before = x;
  }
  plot.rows = dots.text();
  return plot;
}

std::vector<std::string> metrics_in_order(const std::map<std::string, MetricSeries>& series) {
  std::vector<std::string> names;
  for (const auto& [name, values] : series) {
    if (!values.values.empty()) names.push_back(name);
  }
  std::stable_sort(names.begin(), names.end(),
                   [](const auto& a, const auto& b) { return importance(a) < importance(b); });
  return names;
}

void choose_curves(TopCurves& curves, const std::vector<std::string>& metrics, size_t count) {
  if (!curves.are_of_user) curves.names.clear();
  if (curves.names.size() > count) curves.names.resize(count);
  for (const auto& name : metrics) {
    if (curves.names.size() >= count) break;
    if (std::find(curves.names.begin(), curves.names.end(), name) == curves.names.end()) curves.names.push_back(name);
  }
  if (curves.chosen >= curves.names.size()) curves.chosen = 0;
}

size_t curves_for(int columns) {
  return columns >= 110 ? 3 : columns >= 60 ? 2 : 1;
}

std::vector<TopLine> top_view(const RunRecord& run, const std::map<std::string, MetricSeries>& series,
                              const TopCurves& curves, int columns, int rows, double now, const std::string& note) {
  std::vector<TopLine> lines{title_line(run, now)};
  if (!run.unreadable.empty()) lines.push_back({{one_line_text(run.unreadable), TopStyle::bad}});
  if (!run.error.empty()) lines.push_back({{one_line_text(run.error), TopStyle::bad}});
  for (TopLine line : {progress_line(run, columns), rates_line(run), time_line(run, columns)}) {
    if (!line.empty()) lines.push_back(std::move(line));
  }
  const int left = rows - static_cast<int>(lines.size()) - 1;  // but for the last line
  const int most_ranks = std::min(static_cast<int>(run.ranks.size()) + 1, std::max(3, left / 3));
  const std::vector<TopLine> ranks = rank_lines(run, columns, left > 10 ? most_ranks : 0);
  const int room = left - static_cast<int>(ranks.size()) - 1 - (ranks.empty() ? 0 : 1);
  if (room >= 4) {
    lines.emplace_back();
    for (auto& line : curves_block(series, curves, columns, room)) lines.push_back(std::move(line));
  }
  if (!ranks.empty()) {
    lines.emplace_back();
    lines.insert(lines.end(), ranks.begin(), ranks.end());
  }
  lines.resize(static_cast<size_t>(std::max(1, rows)));
  const std::string keys = "q quits   ← → curve   ↑ ↓ metric";
  TopLine& last = lines.back();
  last = {{keys, TopStyle::faint}};
  if (!note.empty()) last.push_back({"   " + one_line_text(note), TopStyle::faint});
  for (TopLine& line : lines) line = cut_line(std::move(line), columns);
  return lines;
}

std::string plain_line(const RunRecord& run, const std::map<std::string, MetricSeries>& series, double now) {
  const auto whole = static_cast<std::time_t>(now);
  std::tm parts{};
  ::localtime_r(&whole, &parts);
  char clock[16];
  std::strftime(clock, sizeof clock, "%H:%M:%S", &parts);
  std::string line = std::string(clock) + " " + status_text(run);
  if (run.epoch >= 0) line += ", epoch " + of_limit(run.epoch, run.max_epochs);
  if (run.step >= 0) line += ", step " + of_limit(run.step, run.max_steps);
  if (!std::isnan(run.progress)) line += ", " + whole_percent(run.progress);
  size_t shown_metrics = 0;
  for (const auto& name : metrics_in_order(series)) {
    if (shown_metrics++ == 3) break;
    line += ", " + one_line_text(name) + " " + short_number(series.at(name).values.back());
  }
  if (!std::isnan(run.batches_per_second)) line += ", " + short_number(run.batches_per_second) + " batches/s";
  if (is_active(run) && !std::isnan(run.remaining_seconds)) line += ", " + span_text(run.remaining_seconds) + " left";
  return line;
}

std::string end_text(const RunRecord& run) {
  std::string text = status_text(run);
  if (const double seconds = run.duration(); !std::isnan(seconds)) text += " after " + span_text(seconds);
  return text + (run.error.empty() ? "" : ": " + one_line_text(run.error));
}

}  // namespace levin
