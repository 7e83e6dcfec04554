#include "levin/cli/runs/run_columns.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <ctime>
#include <set>

#include "levin/core/duration.h"
#include "levin/core/error.h"

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

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::string what_a_column_takes(ColumnKind kind) {
  if (kind == ColumnKind::time) return "a date: 2026-11-23 or \"2026-11-23 10:57\"";
  return kind == ColumnKind::duration ? "seconds or a duration: 90, 10min, 1h30m" : "a number";
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
  metrics_.assign(metrics.begin(), metrics.end());
  hparams_.assign(hparams.begin(), hparams.end());
  config_.assign(config.begin(), config.end());
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
  // Numbers, then texts, then nothing.
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

}  // namespace levin
