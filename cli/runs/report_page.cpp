#include "levin/cli/runs/report_page.h"

#include <array>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "levin/cli/runs/html.h"
#include "levin/cli/runs/report_sections.h"
#include "levin/cli/runs/run_table.h"
#include "levin/core/options/error.h"
#include "levin/core/options/utf8.h"
#include "levin/core/process/this_process.h"
#include "levin/core/version.h"

namespace levin {

namespace {

using nlohmann::json;

// Six digits are more than a screen shows. JSON has no nan: it becomes null.
json json_numbers(const std::vector<double>& values) {
  json numbers = json::array();
  for (const double value : values) numbers.push_back(std::strtod(formatted("%.6g", value).c_str(), nullptr));
  return numbers;
}

json json_series(const ChartSeries& series) {
  const Curve& curve = *series.curve;
  json result{{"label", printable_text(series.label)},
              {"key", series.key},
              {"dash", series.dash},
              {"run", series.run},
              {"lost", curve.first_nonfinite_step},
              {"x", curve.steps},
              {"y", json_numbers(curve.values)}};
  if (curve.is_thinned()) {
    result["meanSteps"] = curve.mean_steps;
    result["means"] = json_numbers(curve.means);
    result["counts"] = curve.counts;
  }
  return result;
}

// [steps, seconds] of a run's clock; null where it has none.
json json_clock(const ReportRun& run) {
  const auto& clock = run.listed.record.clock;
  if (clock.size() < 2) return nullptr;
  std::vector<int64_t> steps;
  std::vector<double> seconds;
  for (const auto& [step, time] : clock) {
    steps.push_back(step);
    seconds.push_back(time);
  }
  return json::array({steps, json_numbers(seconds)});
}

json json_data(const ReportData& data) {
  json result{{"dotted", kDottedPoints}, {"keys", json::array()}, {"runs", json::array()}, {"charts", json::array()}};
  for (const LegendKey& key : data.keys) {
    result["keys"].push_back({{"name", printable_text(key.name)}, {"colour", key.colour}});
  }
  for (const ReportRun& run : data.runs) result["runs"].push_back({{"clock", json_clock(run)}});
  for (const Chart& chart : data.charts) {
    json series = json::array();
    for (const ChartSeries& each : chart.series) series.push_back(json_series(each));
    result["charts"].push_back(std::move(series));
  }
  return result;
}

std::string title_of(const ReportData& data) {
  return data.runs.size() == 1 ? data.runs[0].listed.record.name : count_of(data.runs.size(), "run") + " compared";
}

std::string sub_title(const ReportData& data) {
  std::string text;
  if (data.runs.size() == 1) {
    const RunRecord& record = data.runs[0].listed.record;
    const std::string started = time_text(record.started);
    if (!record.command.empty()) text += record.command + " · ";
    if (!started.empty()) text += "started " + started + " · ";
    if (!record.device.empty())
      text += record.device + (record.world_size > 1 ? " × " + std::to_string(record.world_size) : "") + " · ";
    if (!record.strategy.empty() && record.strategy != "auto") text += record.strategy + " · ";
    if (!record.precision.empty()) text += record.precision + " · ";
  }
  return text + "report of " + time_text(seconds_since_1970());
}

std::string navigation(const std::string& page) {
  constexpr std::array kSections{std::pair{"runs", "Runs"},       std::pair{"health", "Health"},
                                 std::pair{"curves", "Curves"},   std::pair{"results", "Metrics"},
                                 std::pair{"options", "Options"}, std::pair{"time", "Time"},
                                 std::pair{"memory", "Memory"},   std::pair{"checkpoints", "Checkpoints"},
                                 std::pair{"system", "System"},   std::pair{"errors", "Errors"}};
  std::string out = "<nav class=\"nav\" aria-label=\"Parts of this page\">";
  for (const auto& [id, name] : kSections) {
    if (page.find(std::string("<section id=\"") + id + "\">") == std::string::npos) continue;
    out += std::string("<a href=\"#") + id + "\">" + name + "</a>";
  }
  return out + "</nav>";
}

}  // namespace

std::string report_page(const ReportData& data) {
  const std::string title = html_text(title_of(data));
  const bool one = data.runs.size() == 1;
  const std::string status = one ? status_word(data.runs[0].listed.record.status) : "";
  std::string body = summary_section(data) + health_section(data);
  if (data.runs.size() == 1) body += errors_section(data);
  body += curves_section(data) + results_section(data) + options_section(data) + time_section(data) +
          memory_section(data) + checkpoints_section(data) + system_section(data);
  if (data.runs.size() != 1) body += errors_section(data);
  std::string page =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'unsafe-inline'; img-src data:\">\n<meta name=\"generator\" content=\"levin " +
      std::string(version()) + "\">\n<link rel=\"icon\" href=\"data:,\">\n<title>" + title +
      " – levin report</title>\n<style>\n";
  page += kReportStyle;
  page += "</style>\n</head>\n<body>\n<div class=\"wrap\">\n<header class=\"top\"><div class=\"line\"><h1>" + title +
          "</h1>" + (status.empty() ? "" : "<span class=\"badge " + status + "\">" + status + "</span>") +
          "</div>\n<p class=\"sub\">" + html_text(sub_title(data)) + "</p>\n" + navigation(body) +
          "</header>\n<main>\n" + body + "</main>\n<footer>Made by levin " + version() +
          ". This page needs no network.</footer>\n</div>\n";
  if (!data.charts.empty()) {
    page += "<script type=\"application/json\" id=\"data\">" + script_text(json_data(data)) + "</script>\n<script>\n";
    page += kReportScript;
    page += "</script>\n";
  }
  return page + "</body>\n</html>\n";
}

}  // namespace levin
