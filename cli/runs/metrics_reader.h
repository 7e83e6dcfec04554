// The curves of a run: metrics.csv, or metrics.jsonl where metrics.csv is missing. Both may be read while they are
// written, and may hold hundreds of megabytes.
//
//   MetricsReader reader("levin_logs/version_0");
//   while (is_watched) {
//     if (reader.update()) draw(reader.series());
//   }
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace levin {

/// The values of one metric in the order in which they were logged.
struct MetricSeries {
  std::vector<int64_t> steps = {};
  std::vector<double> values = {};
};

/// Reads the metrics of a run while they are written. Keeps all values in memory. Not thread safe.
class MetricsReader {
 public:
  explicit MetricsReader(std::string folder) : folder_(std::move(folder)) {}

  /// Reads what was added since the last call, or the whole file if it was replaced (a new column, a run that was
  /// resumed from an earlier step). An incomplete last line is left for the next call. Returns whether anything was
  /// read. A file that is not there is empty; throws Error if it cannot be read.
  bool update();

  /// By name; "epoch" and "step" are none of them.
  [[nodiscard]] const std::map<std::string, MetricSeries>& series() const { return series_; }

  /// Lines that could not be read.
  [[nodiscard]] int64_t bad_lines() const { return bad_lines_; }

  /// Step and time (seconds since 1970) of rows that have one, at most about 1000; metrics.csv has none.
  [[nodiscard]] const std::vector<std::pair<int64_t, double>>& times() const { return times_; }

 private:
  void start_again();
  [[nodiscard]] bool was_replaced(int fd, uint64_t device, uint64_t inode, uint64_t size) const;
  size_t take(std::string_view text);
  bool take_header(std::string_view text, size_t& used);
  void take_row(std::string_view row);
  void take_json(std::string_view line);
  void add_time(int64_t step, double time);

  std::string folder_;
  std::map<std::string, MetricSeries> series_ = {};
  std::vector<std::pair<int64_t, double>> times_ = {};
  int64_t time_stride_ = 1;  // one row in this many is kept in times_
  int64_t timed_rows_ = 0;
  int64_t bad_lines_ = 0;

  bool is_json_ = false;
  bool has_header_ = false;
  std::vector<MetricSeries*> columns_ = {};  // null: epoch, or a repeated name
  size_t step_column_ = 0;
  std::vector<std::pair<MetricSeries*, double>> row_ = {};
  uint64_t device_ = 0;
  uint64_t inode_ = 0;
  uint64_t read_ = 0;      // bytes of the file that have been read, all of whole lines
  std::string tail_ = "";  // the last of them, to notice that the file was cut and has grown again
};

}  // namespace levin
