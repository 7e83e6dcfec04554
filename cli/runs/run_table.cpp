#include "levin/cli/runs/run_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>

#include "levin/core/count_of.h"
#include "levin/core/duration.h"
#include "levin/core/error.h"
#include "levin/core/short_number.h"
#include "levin/core/utf8.h"

namespace levin {

namespace {

// "11-23 14:39"; of another year "2025-11-23 14:39".
std::string without_this_year(const std::string& time) {
  const std::string now = time_text(static_cast<double>(std::time(nullptr)));
  return time.substr(0, 5) == now.substr(0, 5) && time.size() > 5 ? time.substr(5) : time;
}

constexpr size_t kWidestName = 32;
constexpr size_t kWidestOption = 18;
constexpr size_t kGap = 2;

struct TableColumn {
  std::string title = "";
  std::vector<std::string> cells = {};
  bool is_number = false;
  int importance = 0;  // the most important have the lowest; the others are left out first
  size_t width = 0;
};

// Characters, not bytes.
size_t columns_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string one_line_text(const std::string& text) {
  std::string line = printable_text(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  std::replace(line.begin(), line.end(), '\t', ' ');
  return line;
}

// The first or last `width` characters, with an ellipsis for the others.
std::string shortened(const std::string& text, size_t width, bool keep_end) {
  size_t have = columns_of(text);
  if (have <= width) return text;
  const auto is_start = [](char c) { return (c & 0xc0) != 0x80; };
  if (keep_end) {
    size_t at = 0;
    for (; have >= width; --have) {
      ++at;
      while (at < text.size() && !is_start(text[at])) ++at;
    }
    return "…" + text.substr(at);
  }
  size_t at = 0;
  for (size_t kept = 0; kept + 1 < width; ++kept) {
    ++at;
    while (at < text.size() && !is_start(text[at])) ++at;
  }
  return text.substr(0, at) + "…";
}

std::string cell_number(double value) {
  return std::isnan(value) ? "" : short_number(value);
}

// A metric that was nan at the end has no other last value.
std::string last_text(const ListedRun& run, const std::string& metric) {
  const auto found = run.record.metrics.find(metric);
  return found == run.record.metrics.end() ? "" : short_number(found->second.last);
}

// "a, b, c and 20 more columns"
std::string shortened_list(std::vector<std::string> names, size_t most) {
  if (names.size() <= most + 1) return join(names);
  const size_t more = names.size() - most;
  names.resize(most);
  return join(names) + " and " + std::to_string(more) + " more columns";
}

class RunTable {
 public:
  RunTable(const std::vector<ListedRun>& runs, const RunTableOptions& options) : runs_(runs), options_(options) {}

  std::string str() {
    add_columns();
    const std::vector<std::string> left_out = fit();
    std::string out;
    for (int line = -1; line < static_cast<int>(runs_.size()); ++line) out += line_text(line);
    if (!left_out.empty()) {
      out += "\nNot shown, as the width is " + std::to_string(options_.width) + ": " + shortened_list(left_out, 6) +
             ". --json has everything.\n";
    }
    return out;
  }

 private:
  template <class CellText>
  TableColumn& add(const std::string& title, int importance, const CellText& text) {
    TableColumn column{title, {}, false, importance, 0};
    for (const auto& run : runs_) column.cells.push_back(one_line_text(text(run)));
    columns_.push_back(std::move(column));
    return columns_.back();
  }

  void add_columns() {
    add("name", 0, [](const ListedRun& run) { return run.record.name; });
    add("status", 1, [](const ListedRun& run) { return std::string(status_word(run.record.status)); });
    add("started", 4, [](const ListedRun& run) { return without_this_year(time_text(run.record.started)); });
    add("took", 3, [](const ListedRun& run) {
      const double seconds = run.record.duration();
      return std::isnan(seconds) ? std::string() : readable_duration(Seconds(seconds));
    }).is_number = true;
    add_options();
    const std::string main = main_metric(runs_);
    if (!main.empty()) add_metric(main, 2);
    for (const auto& metric : options_.metrics) {
      if (metric != main) add_metric(metric, 3);
    }
    for (TableColumn& column : columns_) {
      const size_t most = column.title == "name" ? kWidestName : kWidestOption;
      for (std::string& cell : column.cells) cell = shortened(cell, most, column.title == "name");
      column.width = columns_of(column.title);
      for (const std::string& cell : column.cells) column.width = std::max(column.width, columns_of(cell));
    }
  }

  void add_options() {
    std::vector<const RunOptions*> all;
    for (const auto& run : runs_) all.push_back(&run.options);
    std::vector<OptionRow> rows = compare_options(all);
    std::erase_if(rows, [](const OptionRow& row) { return !row.differs; });
    std::vector<std::string> names;
    for (const auto& row : rows) names.push_back(row.name);
    const std::vector<std::string> titles = short_option_names(names);
    for (size_t k = 0; k < rows.size(); ++k) {
      TableColumn column{
          shortened(one_line_text(titles[k]), kWidestOption, true), {}, true, (k < 3 ? 5 : 9) + static_cast<int>(k), 0};
      for (const std::string* value : rows[k].values) {
        const std::string text = value == nullptr ? "" : one_line_text(*value);
        column.is_number = column.is_number && text.find_first_not_of("0123456789.+-e") == std::string::npos;
        column.cells.push_back(text);
      }
      columns_.push_back(std::move(column));
    }
  }

  void add_metric(const std::string& metric, int importance) {
    const std::string shown = one_line_text(metric);
    add(shown + " best", importance, [&](const ListedRun& run) {
      return cell_number(best_value(metric, run.record).first);
    }).is_number = true;
    add("last", importance, [&](const ListedRun& run) { return last_text(run, metric); }).is_number = true;
  }

  // Drops columns until the others fit; returns their titles.
  std::vector<std::string> fit() {
    std::vector<std::string> left_out;
    const auto total = [this] {
      size_t sum = 0;
      for (const auto& column : columns_) sum += column.width + kGap;
      return sum;
    };
    while (columns_.size() > 2 && total() > static_cast<size_t>(std::max(options_.width, 1)) + kGap) {
      auto least = columns_.begin();
      for (auto column = columns_.begin(); column != columns_.end(); ++column) {
        if (column->importance >= least->importance) least = column;
      }
      left_out.insert(left_out.begin(), least->title);
      columns_.erase(least);
    }
    return left_out;
  }

  std::string line_text(int line) const {
    std::string out;
    for (const auto& column : columns_) {
      const std::string& text = line < 0 ? column.title : column.cells[static_cast<size_t>(line)];
      const std::string pad(column.width - columns_of(text), ' ');
      out += (out.empty() ? "" : std::string(kGap, ' ')) + (column.is_number ? pad + text : text + pad);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out + "\n";
  }

  const std::vector<ListedRun>& runs_;
  const RunTableOptions& options_;
  std::vector<TableColumn> columns_ = {};
};

using nlohmann::ordered_json;

ordered_json json_value(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json();
}

// An ordered_json's operator[] looks at every name, which takes a time that is quadratic in their number.
ordered_json json_options(const FlatOptions& options) {
  ordered_json::object_t map;
  std::unordered_map<std::string_view, size_t> places;
  for (const auto& [name, value] : options) {
    const auto [place, is_new] = places.emplace(name, map.size());
    if (is_new) map.emplace_back(name, value);
    if (!is_new) std::next(map.begin(), static_cast<std::ptrdiff_t>(place->second))->second = value;
  }
  return map;
}

ordered_json json_run(const ListedRun& run) {
  const RunRecord& record = run.record;
  ordered_json entry;
  entry["name"] = record.name;
  entry["folder"] = record.folder;
  entry["status"] = record.status == RunStatus::unknown ? ordered_json() : ordered_json(status_word(record.status));
  entry["started"] = json_value(record.started);
  entry["ended"] = json_value(record.ended);
  entry["duration"] = json_value(record.duration());
  entry["command"] = record.command;
  entry["host"] = record.host;
  entry["epoch"] = record.epoch < 0 ? ordered_json() : ordered_json(record.epoch);
  entry["step"] = record.step < 0 ? ordered_json() : ordered_json(record.step);
  entry["skipped_steps"] = record.skipped_steps;
  entry["error"] = record.error.empty() ? ordered_json() : ordered_json(record.error);
  entry["stop_reason"] = record.stop_reason.empty() ? ordered_json() : ordered_json(record.stop_reason);
  entry["monitor"] = record.monitor.empty() ? ordered_json() : ordered_json(record.monitor);
  entry["best"] = json_value(best_value(record.monitor, record).first);
  entry["best_path"] = record.best_path;
  ordered_json::object_t metrics;
  for (const auto& [name, metric] : record.metrics) {
    metrics.emplace_back(name, ordered_json{{"last", json_value(metric.last)},
                                            {"last_step", metric.last_step},
                                            {"min", json_value(metric.min)},
                                            {"min_step", metric.min_step},
                                            {"max", json_value(metric.max)},
                                            {"max_step", metric.max_step}});
  }
  entry["metrics"] = std::move(metrics);
  entry["hparams"] = json_options(run.options.hparams);
  entry["config"] = json_options(run.options.config);
  return entry;
}

}  // namespace

std::string run_table(const std::vector<ListedRun>& runs, const RunTableOptions& options) {
  return RunTable(runs, options).str();
}

std::string runs_as_json(const std::vector<ListedRun>& runs) {
  ordered_json all;
  all["runs"] = ordered_json::array();
  for (const auto& run : runs) all["runs"].push_back(json_run(run));
  return all.dump(1, ' ', /*ensure_ascii=*/true, ordered_json::error_handler_t::replace);
}

std::string time_text(double seconds) {
  if (!(std::abs(seconds) < 1e12)) return "";
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  if (::localtime_r(&time, &parts) == nullptr) return "";
  std::array<char, 64> text = {};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M", &parts);
  return text.data();
}

}  // namespace levin
