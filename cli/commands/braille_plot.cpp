#include "levin/cli/commands/braille_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

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

}  // namespace levin
