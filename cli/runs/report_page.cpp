#include "levin/cli/runs/report_page.h"

#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "levin/cli/runs/html_text.h"
#include "levin/cli/runs/report_assets.h"
#include "levin/cli/runs/report_details.h"
#include "levin/cli/runs/report_sections.h"
#include "levin/cli/runs/run_table.h"
#include "levin/core/count_of.h"
#include "levin/core/version.h"
#include "levin/core/wall_clock.h"

namespace levin {

namespace {

template <class Values, class Text>
std::string json_list(const Values& values, const Text& text) {
  std::string out = "[";
  for (const auto& value : values) {
    if (out.size() > 1) out += ',';
    out += text(value);
  }
  return out + "]";
}

std::string json_steps(const std::vector<int64_t>& steps) {
  return json_list(steps, [](int64_t step) { return std::to_string(step); });
}

std::string json_series(const ChartSeries& series) {
  const Curve& curve = *series.curve;
  std::string out = "{\"label\":" + script_string(series.label) + ",\"key\":" + std::to_string(series.key) +
                    ",\"dash\":" + std::to_string(series.dash) + ",\"run\":" + std::to_string(series.run) +
                    ",\"lost\":" + std::to_string(curve.first_nonfinite_step) + ",\"x\":" + json_steps(curve.steps) +
                    ",\"y\":" + json_list(curve.values, script_number);
  if (curve.is_thinned()) {
    out += ",\"meanSteps\":" + json_steps(curve.mean_steps) + ",\"means\":" + json_list(curve.means, script_number) +
           ",\"counts\":" + json_steps(curve.counts);
  }
  return out + "}";
}

std::string json_clock(const ReportRun& run) {
  const auto& clock = run.listed.record.clock;
  if (clock.size() < 2) return "null";
  return "[" + json_list(clock, [](const auto& point) { return std::to_string(point.first); }) + "," +
         json_list(clock, [](const auto& point) { return script_number(point.second); }) + "]";
}

std::string json_data(const ReportData& data) {
  return "{\"dotted\":" + std::to_string(kDottedPoints) + ",\"keys\":" +
         json_list(data.keys,
                   [](const LegendKey& key) {
                     return "{\"name\":" + script_string(key.name) + ",\"colour\":" + std::to_string(key.colour) + "}";
                   }) +
         ",\"runs\":" +
         json_list(data.runs, [](const ReportRun& run) { return "{\"clock\":" + json_clock(run) + "}"; }) +
         ",\"charts\":" +
         json_list(data.charts, [](const Chart& chart) { return json_list(chart.series, json_series); }) + "}";
}

std::string title_of(const ReportData& data) {
  return data.runs.size() == 1 ? data.runs[0].listed.record.name
                               : count_of(static_cast<int64_t>(data.runs.size()), "run") + " compared";
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
    page += "<script type=\"application/json\" id=\"data\">" + json_data(data) + "</script>\n<script>\n";
    page += kReportScript;
    page += "</script>\n";
  }
  return page + "</body>\n</html>\n";
}

}  // namespace levin
