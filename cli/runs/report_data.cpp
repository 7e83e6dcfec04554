#include "levin/cli/runs/report_data.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "levin/cli/runs/metrics_reader.h"
#include "levin/core/options/error.h"

namespace levin {

namespace {

constexpr size_t kMaxCharts = 48;
constexpr size_t kPointBudget = 120'000;  // of all curves: about 2 MB of a page
constexpr size_t kMaxPoints = 2000;       // of one curve: more than a screen is wide
constexpr size_t kMinPoints = 100;

constexpr std::array kStages{"train", "val", "test", "other"};

// "train_loss_step" is "loss_step" of stage 0.
std::pair<int, std::string> stage_of(const std::string& metric) {
  constexpr std::array kPrefixes{std::pair{"train", 0}, std::pair{"training", 0},   std::pair{"val", 1},
                                 std::pair{"valid", 1}, std::pair{"validation", 1}, std::pair{"test", 2}};
  for (const auto& [prefix, stage] : kPrefixes) {
    const std::string word = prefix;
    if (!metric.starts_with(word) || metric.size() < word.size() + 2) continue;
    if (metric[word.size()] == '_' || metric[word.size()] == '/') return {stage, metric.substr(word.size() + 1)};
  }
  return {3, metric};
}

std::string without_suffix(const std::string& name) {
  for (const std::string end : {"_step", "_epoch"}) {
    if (name.size() > end.size() && name.ends_with(end)) return name.substr(0, name.size() - end.size());
  }
  return name;
}

// Losses first, then what is monitored, then by name; learning rates and the like last.
int order_of(const std::string& title, const std::string& monitor) {
  if (title.find("loss") != std::string::npos) return title.starts_with("val") ? 1 : 0;
  if (!monitor.empty() && (title == monitor || monitor.ends_with("_" + title) || monitor.ends_with("/" + title)))
    return 2;
  if (title.starts_with("lr-") || title == "lr") return 5;
  return title.starts_with("system") || title.find("memory") != std::string::npos ? 6 : 3;
}

// The runs' shortest names that tell them apart.
void name_runs(std::vector<ReportRun>& runs) {
  namespace fs = std::filesystem;
  std::vector<fs::path> paths;
  for (const auto& run : runs) {
    fs::path path = fs::absolute(run.listed.record.folder).lexically_normal();
    if (path.filename().empty()) path = path.parent_path();
    paths.push_back(path);
  }
  for (size_t parts = 1; parts < 12; ++parts) {
    std::set<std::string> names;
    for (size_t k = 0; k < runs.size(); ++k) {
      fs::path name = paths[k].filename();
      fs::path rest = paths[k].parent_path();
      for (size_t part = 1; part < parts && rest.has_filename(); ++part, rest = rest.parent_path()) {
        name = rest.filename() / name;
      }
      runs[k].listed.record.name = name.string();
      names.insert(name.string());
    }
    if (names.size() == runs.size()) return;
  }
}

void use_times(RunRecord& record, const std::vector<std::pair<int64_t, double>>& times) {
  if (!record.clock.empty() || times.size() < 2) return;
  for (const auto& [step, time] : times) {
    const double seconds = time - times.front().second;
    if (record.clock.empty() || seconds >= record.clock.back().second) record.clock.emplace_back(step, seconds);
  }
}

void add_charts_of_one(ReportData& data) {
  std::map<std::string, Chart> charts;
  std::map<std::pair<std::string, int>, int> uses;
  for (const auto& [metric, curve] : data.runs[0].curves) {
    const auto [stage, rest] = stage_of(metric);
    const std::string title = without_suffix(rest);
    Chart& chart = charts[title];
    chart.title = title;
    chart.series.push_back({metric, stage, uses[{title, stage}]++, 0, &curve});
  }
  std::array<bool, kStages.size()> used = {};
  for (auto& [title, chart] : charts) {
    if (chart.series.size() == 1) chart.title = chart.series[0].label;
    std::stable_sort(chart.series.begin(), chart.series.end(),
                     [](const ChartSeries& a, const ChartSeries& b) { return a.key < b.key; });
    for (const auto& series : chart.series) used[static_cast<size_t>(series.key)] = true;
    data.charts.push_back(std::move(chart));
  }
  for (size_t stage = 0; stage < kStages.size(); ++stage)
    data.keys.push_back({used[stage] ? kStages[stage] : "", static_cast<int>(stage)});
}

void add_charts_of_several(ReportData& data) {
  std::map<std::string, Chart> charts;
  for (size_t run = 0; run < data.runs.size(); ++run) {
    const int colour = static_cast<int>(run) % kPalette;
    data.keys.push_back({data.runs[run].listed.record.name, colour});
    for (const auto& [metric, curve] : data.runs[run].curves) {
      Chart& chart = charts[metric];
      chart.title = metric;
      chart.series.push_back(
          {data.runs[run].listed.record.name, static_cast<int>(run), static_cast<int>(run) / kPalette, run, &curve});
    }
  }
  for (auto& [title, chart] : charts) data.charts.push_back(std::move(chart));
}

}  // namespace

Curve thin_curve(const MetricSeries& series, size_t most) {
  Curve whole;
  for (size_t k = 0; k < series.values.size(); ++k) {
    if (std::isfinite(series.values[k])) {
      whole.steps.push_back(series.steps[k]);
      whole.values.push_back(series.values[k]);
    } else if (whole.nonfinite++ == 0) {
      whole.first_nonfinite_step = series.steps[k];
    }
  }
  const size_t count = whole.values.size();
  whole.points = static_cast<int64_t>(count);
  if (count <= std::max<size_t>(most, 4)) return whole;
  Curve thinned;
  thinned.points = whole.points;
  thinned.nonfinite = whole.nonfinite;
  thinned.first_nonfinite_step = whole.first_nonfinite_step;
  const auto keep = [&](size_t k) {
    thinned.steps.push_back(whole.steps[k]);
    thinned.values.push_back(whole.values[k]);
  };
  const size_t stretches = std::max<size_t>(most, 4) / 2 - 1;
  for (size_t stretch = 0; stretch < stretches; ++stretch) {
    const size_t begin = stretch * count / stretches;
    const size_t end = (stretch + 1) * count / stretches;
    size_t lowest = begin;
    size_t highest = begin;
    double sum = 0;
    for (size_t k = begin; k < end; ++k) {
      if (whole.values[k] < whole.values[lowest]) lowest = k;
      if (whole.values[k] > whole.values[highest]) highest = k;
      sum += whole.values[k] / static_cast<double>(end - begin);
    }
    thinned.mean_steps.push_back(whole.steps[end - 1]);
    thinned.means.push_back(sum);
    thinned.counts.push_back(static_cast<int64_t>(end - begin));
    const auto [first, second] = std::minmax(lowest, highest);
    if (stretch == 0 && first != 0) keep(0);
    keep(first);
    if (second != first) keep(second);
    if (end == count && second != count - 1) keep(count - 1);
  }
  return thinned;
}

std::vector<double> smoothed_values(std::span<const double> values, std::span<const int64_t> counts, double weight) {
  std::vector<double> smoothed;
  smoothed.reserve(values.size());
  double average = 0;
  double seen = 0;
  for (size_t k = 0; k < values.size(); ++k) {
    const double count = counts.empty() ? 1 : static_cast<double>(counts[k]);
    const double kept = std::pow(weight, count);
    seen += count;
    average = kept * average + (1 - kept) * values[k];
    smoothed.push_back(weight <= 0 ? values[k] : average / (1 - std::pow(weight, seen)));
  }
  return smoothed;
}

std::vector<double> smoothed_values(const Curve& curve, double weight) {
  if (curve.values.size() <= kDottedPoints) return curve.values;
  return curve.is_thinned() ? smoothed_values(curve.means, curve.counts, weight)
                            : smoothed_values(curve.values, {}, weight);
}

ReportData collect_report(const std::vector<std::string>& folders) {
  ReportData data;
  std::vector<ListedRun> listed = read_runs(folders, "");
  for (ListedRun& run : listed) {
    MetricsReader reader(run.record.folder);
    try {
      reader.update();
    } catch (const Error& error) {
      run.record.unreadable = error.what();  // shown with the run; the others are whole
    }
    use_times(run.record, reader.times());
    ReportRun entry;
    entry.findings = run_health(run.record, reader.series());
    entry.bad_lines = reader.bad_lines();
    const size_t most =
        std::clamp(kPointBudget / std::max<size_t>(reader.series().size() * listed.size(), 1), kMinPoints, kMaxPoints);
    for (const auto& [name, series] : reader.series()) {
      Curve curve = thin_curve(series, most);
      if (curve.values.size() > 1) entry.curves.emplace(name, std::move(curve));
    }
    entry.listed = std::move(run);
    data.runs.push_back(std::move(entry));
  }
  name_runs(data.runs);
  data.runs.size() == 1 ? add_charts_of_one(data) : add_charts_of_several(data);
  const std::string monitor = data.runs.empty() ? "" : data.runs[0].listed.record.monitor;
  std::stable_sort(data.charts.begin(), data.charts.end(), [&](const Chart& a, const Chart& b) {
    return std::pair(order_of(a.title, monitor), a.title) < std::pair(order_of(b.title, monitor), b.title);
  });
  while (data.charts.size() > kMaxCharts) {
    data.charts_left_out.push_back(data.charts.back().title);
    data.charts.pop_back();
  }
  std::reverse(data.charts_left_out.begin(), data.charts_left_out.end());
  return data;
}

}  // namespace levin
