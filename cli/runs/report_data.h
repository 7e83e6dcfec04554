// What a report shows: the runs with their curves, and which curves share a chart.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "levin/cli/runs/metrics_reader.h"
#include "levin/cli/runs/run_health.h"
#include "levin/cli/runs/run_list.h"

namespace levin {

// --- A metric's values as a curve: thinned so that a page stays small, and smoothed.

/// Finite points in the order in which they were logged.
struct Curve {
  std::vector<int64_t> steps = {};
  std::vector<double> values = {};
  // Where points were left out: the mean of each stretch of the whole curve, at its last step, for smoothing.
  std::vector<int64_t> mean_steps = {};
  std::vector<double> means = {};
  std::vector<int64_t> counts = {};  // points of each stretch
  int64_t points = 0;                // of the whole curve
  int64_t nonfinite = 0;             // values that are nan or infinite, and in none of the lists
  int64_t first_nonfinite_step = -1;

  [[nodiscard]] bool is_thinned() const { return !means.empty(); }
};

/// At most about `most` points: of each stretch the smallest and the largest, and the first and the last of all.
[[nodiscard]] Curve thin_curve(const MetricSeries& series, size_t most);

/// The moving average that TensorBoard draws: s = weight * s + (1 - weight) * value, divided by 1 - weight^n, so that
/// the start is not drawn to 0. `counts`: each value is the mean of this many values; empty: of one.
[[nodiscard]] std::vector<double> smoothed_values(std::span<const double> values, std::span<const int64_t> counts,
                                                  double weight);

/// A curve with at most this many points, one per epoch for example, is drawn unsmoothed, with a dot at each.
inline constexpr size_t kDottedPoints = 30;

/// The smoothed curve, of the means where the curve is thinned; its own values where it has dots.
[[nodiscard]] std::vector<double> smoothed_values(const Curve& curve, double weight);

/// One run of a report: its record, its curves, and the findings about its health.
struct ReportRun {
  ListedRun listed = {};
  std::map<std::string, Curve> curves = {};
  std::vector<HealthFinding> findings = {};
  int64_t bad_lines = 0;
};

/// A curve of a chart. `key`: what the legend switches, a run or "train", "val", "test", "other".
struct ChartSeries {
  std::string label = "";
  int key = 0;
  int dash = 0;
  size_t run = 0;
  const Curve* curve = nullptr;
};

/// The curves that share one plot.
struct Chart {
  std::string title = "";
  std::vector<ChartSeries> series = {};
};

/// An entry of the legend.
struct LegendKey {
  std::string name = "";
  int colour = 0;  // of the palette, kPalette
};

inline constexpr int kPalette = 7;

/// All that a report page shows. It owns the curves that its charts point to, so it can be moved but not copied.
struct ReportData {
  std::vector<ReportRun> runs = {};
  std::vector<LegendKey> keys = {};
  std::vector<Chart> charts = {};
  std::vector<std::string> charts_left_out = {};

  // Charts point into runs.
  ReportData() = default;
  ReportData(const ReportData&) = delete;
  ReportData& operator=(const ReportData&) = delete;
  ReportData(ReportData&&) = default;
  ReportData& operator=(ReportData&&) = default;
  ~ReportData() = default;
};

/// Reads the runs. Metrics with one value are in no chart. Throws Error if a file cannot be read.
[[nodiscard]] ReportData collect_report(const std::vector<std::string>& folders);

}  // namespace levin
