// What a run logs besides numbers: histograms, tables, and where in the run a value belongs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace levin {

/// Numbers by name, in the order they were logged.
using MetricList = std::vector<std::pair<std::string, double>>;

/// Numbers of rows whose names repeat from step to step: rows share the names, and `epoch` is a further value.
struct MetricRow {
  std::shared_ptr<const std::vector<std::string>> names = nullptr;
  std::vector<double> values = {};  // as many as names
  std::optional<double> epoch = std::nullopt;
};

/// Where in the run a value was logged. `step` counts completed accumulation windows from 0; `time` is in seconds since
/// 1970, taken when the value was logged, not when it is written.
struct LogPoint {
  LogPoint() = default;
  LogPoint(int64_t at_step, double at_time = 0) : step(at_step), time(at_time) {}

  int64_t step = 0;
  double time = 0;
};

/// The distribution of the values of a tensor. counts[k] is the number of values in [edges[k], edges[k + 1]); the last
/// bin includes its upper edge. nan and infinities are counted in `nonfinite` only.
struct Histogram {
  double min = 0;
  double max = 0;
  double count = 0;
  double sum = 0;
  double sum_squares = 0;
  int64_t nonfinite = 0;
  std::vector<double> edges = {};  // one more than counts
  std::vector<double> counts = {};
};

/// Rows of numbers and strings.
struct LogTable {
  using Cell = std::variant<double, std::string>;
  std::vector<std::string> columns = {};
  std::vector<std::vector<Cell>> rows = {};  // each as long as columns
};

/// An image of 8-bit samples, row by row from the top: (height, width, channels).
struct LogImage {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 3;  // 1: grey; 3: red, green, blue; 4: with alpha
  std::vector<uint8_t> samples = {};
};

}  // namespace levin
