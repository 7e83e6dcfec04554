#include "levin/cli/runs/run_table.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <ctime>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <unordered_map>

#include "levin/cli/config/text_layout.h"
#include "levin/core/options/error.h"
#include "levin/core/options/units.h"

namespace levin {

namespace {

Cell number_cell(double value) {
  return std::isnan(value) ? Cell() : Cell(value);
}

Cell count_cell(int64_t value) {
  return value < 0 ? Cell() : Cell(static_cast<double>(value));
}

Cell text_cell(const std::string& text) {
  return text.empty() ? Cell() : Cell(text);
}

bool to_number(std::string_view text, double& number) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  return !text.empty() && result.ec == std::errc() && result.ptr == text.data() + text.size();
}

Cell option_cell(const std::string* value) {
  if (value == nullptr) return {};
  double number = 0;
  return to_number(*value, number) ? Cell(number) : Cell(*value);
}

struct KnownColumn {
  const char* name;
  ColumnKind kind;
  Cell (*cell)(const ListedRun&);
};

constexpr std::array kKnownColumns{
    KnownColumn{"name", ColumnKind::text, [](const ListedRun& run) { return text_cell(run.record.name); }},
    KnownColumn{"status", ColumnKind::text,
                [](const ListedRun& run) { return text_cell(status_word(run.record.status)); }},
    KnownColumn{"started", ColumnKind::time, [](const ListedRun& run) { return number_cell(run.record.started); }},
    KnownColumn{"ended", ColumnKind::time, [](const ListedRun& run) { return number_cell(run.record.ended); }},
    KnownColumn{"duration", ColumnKind::duration,
                [](const ListedRun& run) { return number_cell(run.record.duration()); }},
    KnownColumn{"best", ColumnKind::number,
                [](const ListedRun& run) { return number_cell(best_value(run.record.monitor, run.record).first); }},
    KnownColumn{"epoch", ColumnKind::number, [](const ListedRun& run) { return count_cell(run.record.epoch); }},
    KnownColumn{"step", ColumnKind::number, [](const ListedRun& run) { return count_cell(run.record.step); }},
    KnownColumn{"skipped_steps", ColumnKind::number,
                [](const ListedRun& run) { return count_cell(run.record.skipped_steps); }},
    KnownColumn{"command", ColumnKind::text, [](const ListedRun& run) { return text_cell(run.record.command); }},
    KnownColumn{"host", ColumnKind::text, [](const ListedRun& run) { return text_cell(run.record.host); }},
    KnownColumn{"device", ColumnKind::text, [](const ListedRun& run) { return text_cell(run.record.device); }},
    KnownColumn{"strategy", ColumnKind::text, [](const ListedRun& run) { return text_cell(run.record.strategy); }},
    KnownColumn{"precision", ColumnKind::text, [](const ListedRun& run) { return text_cell(run.record.precision); }},
    KnownColumn{"world_size", ColumnKind::number,
                [](const ListedRun& run) { return count_cell(run.record.world_size); }},
    KnownColumn{"error", ColumnKind::text, [](const ListedRun& run) { return text_cell(run.record.error); }},
    KnownColumn{"stop_reason", ColumnKind::text,
                [](const ListedRun& run) { return text_cell(run.record.stop_reason); }},
};

bool is_in(const std::vector<std::string>& sorted, const std::string& name) {
  return std::binary_search(sorted.begin(), sorted.end(), name);
}

// "2026-11-23", "2026-11-23 10:57" or with seconds, in local time; false if it is none of them.
bool to_time(const std::string& text, double& seconds) {
  for (const char* pattern :
       {"%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%Y-%m-%d"}) {
    std::tm parts{};
    parts.tm_isdst = -1;
    const char* end = ::strptime(text.c_str(), pattern, &parts);
    if (end == nullptr || *end != '\0') continue;
    seconds = static_cast<double>(std::mktime(&parts));
    return true;
  }
  return false;
}

bool to_duration(const std::string& text, double& seconds) {
  if (to_number(text, seconds)) return true;
  try {
    seconds = parse_duration(text).count();
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool holds(const std::string& sign, int order) {
  if (sign == "=" || sign == "==") return order == 0;
  if (sign == "!=") return order != 0;
  if (sign == "<") return order < 0;
  if (sign == "<=") return order <= 0;
  return sign == ">" ? order > 0 : order >= 0;
}

std::string what_a_column_takes(ColumnKind kind) {
  if (kind == ColumnKind::time) return "a date: 2026-11-23 or \"2026-11-23 10:57\"";
  return kind == ColumnKind::duration ? "seconds or a duration: 90, 10min, 1h30m" : "a number";
}

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
      column.width = text_width(column.title);
      for (const std::string& cell : column.cells) column.width = std::max(column.width, text_width(cell));
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
      const std::string pad(column.width - text_width(text), ' ');
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

RunColumns::RunColumns(const std::vector<ListedRun>& runs) {
  std::set<std::string> metrics;
  std::set<std::string> hparams;
  std::set<std::string> config;
  for (const auto& run : runs) {
    for (const auto& metric : run.record.metrics) metrics.insert(metric.first);
    for (const auto& option : run.options.hparams) hparams.insert(option.first);
    for (const auto& option : run.options.config) config.insert(option.first);
  }
  metrics_ = {metrics.begin(), metrics.end()};
  hparams_ = {hparams.begin(), hparams.end()};
  config_ = {config.begin(), config.end()};
}

bool RunColumns::find_metric(const std::string& name, Column& column) const {
  std::string metric = name;
  double RunMetric::*part = &RunMetric::last;
  const size_t dot = name.rfind('.');
  const std::string end = dot == std::string::npos ? "" : name.substr(dot + 1);
  if (!is_in(metrics_, name) && (end == "min" || end == "max" || end == "last")) {
    metric = name.substr(0, dot);
    part = end == "min" ? &RunMetric::min : end == "max" ? &RunMetric::max : &RunMetric::last;
  }
  if (!is_in(metrics_, metric)) return false;
  column.kind = ColumnKind::number;
  column.cell = [metric, part](const ListedRun& run) {
    const auto found = run.record.metrics.find(metric);
    return found == run.record.metrics.end() ? Cell() : Cell(found->second.*part);
  };
  return true;
}

bool RunColumns::find_option_column(const std::string& name, Column& column) const {
  const std::string hparam = name.starts_with("hparams.") ? name.substr(8) : name;
  const std::string key = name.starts_with("config.") ? name.substr(7) : name;
  if (is_in(hparams_, hparam)) {
    column.cell = [hparam](const ListedRun& run) { return option_cell(find_option(run.options.hparams, hparam)); };
    return true;
  }
  std::vector<std::string> keys;
  for (const auto& known : config_) {
    if (known == key) keys = {known};
    if (known == key) break;
    if (known.ends_with("." + key)) keys.push_back(known);
  }
  if (keys.empty()) return false;
  if (keys.size() > 1) {
    keys.resize(std::min<size_t>(keys.size(), 6));
    throw Error("\"" + cut_text(name) + "\" could be several options: " + join(keys) + ". Write one in full.");
  }
  column.cell = [only = keys[0]](const ListedRun& run) { return option_cell(find_option(run.options.config, only)); };
  return true;
}

RunColumns::Column RunColumns::find(const std::string& name, const std::string& where) const {
  Column column;
  column.name = name;
  for (const KnownColumn& known : kKnownColumns) {
    if (name != known.name) continue;
    column.kind = known.kind;
    column.cell = known.cell;
    return column;
  }
  const std::string metric = name.starts_with("metrics.") ? name.substr(8) : name;
  if (find_metric(metric, column) || find_option_column(name, column)) return column;
  std::vector<std::string> known;
  for (const KnownColumn& each : kKnownColumns) known.emplace_back(each.name);
  for (const auto* names : {&metrics_, &hparams_}) known.insert(known.end(), names->begin(), names->end());
  std::vector<std::string> all = known;
  all.insert(all.end(), config_.begin(), config_.end());
  throw Error(where + ": no run has a column \"" + cut_text(name) + "\"." + did_you_mean(name, all) +
              " Known: " + cut_text(join(known), 600) +
              (config_.empty() ? "." : ", and the keys of config.yaml, e.g. trainer.max_epochs."));
}

std::function<bool(const ListedRun&)> parse_filter(const std::string& text, const RunColumns& columns) {
  const std::string where = "--filter \"" + cut_text(text) + "\"";
  const size_t at = text.find_first_of("<>=!~");
  const std::string name = trimmed(text.substr(0, at));
  if (at == std::string::npos || name.empty()) {
    throw Error(where + ": it compares nothing. Write NAME, one of = != < <= > >= ~, and a value: \"lr>0.001\".");
  }
  const size_t length = at + 1 < text.size() && text[at] != '~' && text[at + 1] == '=' ? 2 : 1;
  const std::string sign = text.substr(at, length);
  const std::string value = trimmed(text.substr(at + length));
  if (sign == "!") throw Error(where + ": \"!\" alone compares nothing. Write !=.");
  const RunColumns::Column column = columns.find(name, where);
  if (sign == "~") {
    return [column, value](const ListedRun& run) {
      const Cell cell = column.cell(run);
      const auto* found = std::get_if<std::string>(&cell);
      return found != nullptr && found->find(value) != std::string::npos;
    };
  }
  double number = 0;
  const bool is_number = column.kind == ColumnKind::time       ? to_time(value, number) || to_number(value, number)
                         : column.kind == ColumnKind::duration ? to_duration(value, number)
                                                               : to_number(value, number);
  const bool takes_text = column.kind == ColumnKind::text && (sign == "=" || sign == "==" || sign == "!=");
  if (!is_number && !takes_text) {
    throw Error(where + ": \"" + cut_text(value) + "\" cannot be compared with " + sign + ". " + cut_text(name) +
                " takes " + what_a_column_takes(column.kind) + ".");
  }
  return [column, sign, value, number, is_number](const ListedRun& run) {
    const Cell cell = column.cell(run);
    if (const auto* found = std::get_if<double>(&cell)) {
      if (std::isnan(*found) || std::isnan(number)) return (sign == "!=") != (std::isnan(*found) && std::isnan(number));
      if (is_number) return holds(sign, *found < number ? -1 : *found > number ? 1 : 0);
      return sign == "!=";
    }
    if (const auto* found = std::get_if<std::string>(&cell)) {
      return sign == "!=" ? *found != value : (sign == "=" || sign == "==") && *found == value;
    }
    return sign == "!=";
  };
}

void sort_runs(std::vector<ListedRun>& runs, const std::string& order) {
  const bool descending = order.starts_with('-');
  const RunColumns columns(runs);
  const RunColumns::Column column = columns.find(descending ? order.substr(1) : order, "--sort");
  std::vector<std::pair<Cell, size_t>> keys;
  for (size_t k = 0; k < runs.size(); ++k) keys.emplace_back(column.cell(runs[k]), k);
  // Numbers, then text, then missing values.
  const auto rank = [](const Cell& cell) {
    if (const auto* number = std::get_if<double>(&cell)) return std::isnan(*number) ? 2 : 0;
    return std::holds_alternative<std::string>(cell) ? 1 : 3;
  };
  std::stable_sort(keys.begin(), keys.end(), [&](const auto& left, const auto& right) {
    const int a = rank(left.first);
    const int b = rank(right.first);
    if (a != b) return a < b;
    const Cell& first = descending ? right.first : left.first;
    const Cell& second = descending ? left.first : right.first;
    if (a == 0) return std::get<double>(first) < std::get<double>(second);
    return a == 1 && natural_less(std::get<std::string>(first), std::get<std::string>(second));
  });
  std::vector<ListedRun> sorted;
  for (const auto& key : keys) sorted.push_back(std::move(runs[key.second]));
  runs = std::move(sorted);
}

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
