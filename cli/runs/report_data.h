// What a report shows: the runs with their curves, and which curves share a chart.
#pragma once

#include <string>
#include <vector>

#include "levin/cli/runs/curve_points.h"
#include "levin/cli/runs/run_health.h"
#include "levin/cli/runs/run_list.h"

namespace levin {

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

struct Chart {
  std::string title = "";
  std::vector<ChartSeries> series = {};
};

struct LegendKey {
  std::string name = "";
  int colour = 0;  // of the palette, kPalette
};

inline constexpr int kPalette = 7;

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
