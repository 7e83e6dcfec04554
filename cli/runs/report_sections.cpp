#include "levin/cli/runs/report_sections.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "levin/cli/config/text_layout.h"
#include "levin/cli/runs/chart_svg.h"
#include "levin/cli/runs/html.h"
#include "levin/cli/runs/run_health.h"
#include "levin/cli/runs/run_table.h"
#include "levin/core/options/error.h"
#include "levin/core/options/units.h"

namespace levin {

namespace {

constexpr size_t kMaxOptionColumns = 5;
constexpr size_t kMaxResultRows = 300;

constexpr const char* kDash = "<span class=\"absent\">–</span>";

std::string badge(RunStatus status) {
  const std::string word = status_word(status);
  return word.empty() ? "" : "<span class=\"badge " + word + "\">" + word + "</span>";
}

std::string took(const RunRecord& record) {
  const double seconds = record.duration();
  return std::isnan(seconds) ? kDash : readable_duration(Seconds(seconds));
}

std::string tile(const std::string& name, const std::string& value, const std::string& below) {
  return "<div class=\"card tile\"><dt title=\"" + html_text(name) + "\">" + html_text(name) + "</dt><dd>" + value +
         (below.empty() ? "" : "<small>" + html_text(below) + "</small>") + "</dd></div>\n";
}

std::string tiles_of(const ReportRun& run, const std::vector<ListedRun>& listed) {
  const RunRecord& record = run.listed.record;
  std::string out = "<dl class=\"tiles\">";
  const std::string metric = main_metric(listed);
  if (!metric.empty()) {
    const auto [best, step] = best_value(metric, record);
    out += tile("Best " + metric, html_number(best), step < 0 ? "" : "at step " + grouped_number(step));
    const auto found = record.metrics.find(metric);
    if (found != record.metrics.end()) {
      out += tile("Last " + metric, html_text(short_number(found->second.last)),
                  "at step " + grouped_number(found->second.last_step));
    }
  }
  const std::string loss = training_loss_name([&] {
    AllSeries names;
    for (const auto& [name, values] : record.metrics) names[name] = MetricSeries{{values.last_step}, {values.last}};
    return names;
  }());
  if (!loss.empty() && loss != metric) {
    const RunMetric& values = record.metrics.at(loss);
    out += tile("Last " + loss, html_text(short_number(values.last)), "lowest " + short_number(values.min));
  }
  if (record.step >= 0) {
    std::string below = record.max_steps > 0 ? "of " + grouped_number(record.max_steps) : "";
    if (record.epoch >= 0)
      below = "epoch " + grouped_number(record.epoch) +
              (record.max_epochs > 0 ? " of " + grouped_number(record.max_epochs) : "");
    out += tile("Steps", grouped_number(record.step), below);
  }
  out += tile("Duration", took(record),
              record.session_count() > 1 ? "in " + count_of(record.session_count(), "session") : "");
  if (record.batches_per_second >= 0) {
    out += tile(
        "Speed", html_number(record.batches_per_second) + " it/s",
        record.samples_per_second >= 0 ? grouped_number(std::llround(record.samples_per_second)) + " samples/s" : "");
  }
  return out + "</dl>";
}

std::string table_of_runs(const ReportData& data, const std::vector<ListedRun>& listed) {
  std::vector<const RunOptions*> all;
  for (const auto& run : listed) all.push_back(&run.options);
  std::vector<OptionRow> rows = compare_options(all);
  std::erase_if(rows, [](const OptionRow& row) { return !row.differs; });
  if (rows.size() > kMaxOptionColumns) rows.resize(kMaxOptionColumns);
  std::vector<std::string> names;
  for (const auto& row : rows) names.push_back(row.name);
  std::vector<std::string> titles{"Run", "Status", "Started", "#Took"};
  for (const auto& name : short_option_names(names)) titles.push_back("#" + cut_text(name, 28));
  const std::string metric = main_metric(listed);
  if (!metric.empty()) titles.insert(titles.end(), {"#Best " + metric, "#Last"});
  HtmlTable table(titles);
  for (size_t k = 0; k < listed.size(); ++k) {
    const RunRecord& record = listed[k].record;
    const std::string started = time_text(record.started);
    std::vector<std::string> cells{
        named_swatch(record.name, data.keys[k].colour, static_cast<int>(k) / kPalette), badge(record.status),
        started.empty() ? kDash : "<span class=\"nowrap\">" + started + "</span>", took(record)};
    for (const auto& row : rows)
      cells.push_back(row.values[k] == nullptr ? kDash : html_text(cut_text(*row.values[k], 40)));
    if (!metric.empty()) {
      const auto found = record.metrics.find(metric);
      cells.push_back(html_number(best_value(metric, record).first));
      cells.push_back(found == record.metrics.end() ? kDash : html_text(short_number(found->second.last)));
    }
    table.row(cells);
  }
  return html_card(table.str());
}

std::vector<ListedRun> listed_runs(const ReportData& data) {
  std::vector<ListedRun> listed;
  for (const auto& run : data.runs) listed.push_back(run.listed);
  return listed;
}

std::string finding_item(const HealthFinding& finding) {
  struct Look {
    const char* name;
    const char* mark;
    const char* word;
  };
  static constexpr std::array kLooks{Look{"good", "✓", "good"}, Look{"note", "i", "note"},
                                     Look{"watch", "!", "to watch"}, Look{"bad", "✕", "bad"}};
  const Look& look = kLooks[static_cast<size_t>(finding.level)];
  std::string out = std::string("<li class=\"") + look.name + "\"><span class=\"mark\" role=\"img\" aria-label=\"" +
                    look.word + "\">" + look.mark + "</span><span class=\"topic\">" + html_text(finding.topic) +
                    "</span><div><p>" + html_text(finding.text) + "</p>";
  if (!finding.remedy.empty()) out += "<p class=\"do\">" + html_text(finding.remedy) + "</p>";
  return out + "</div></li>\n";
}

std::string findings_list(const ReportRun& run) {
  std::string out;
  for (const auto& finding : run.findings) out += finding_item(finding);
  return out.empty() ? "<p class=\"pad muted\" style=\"margin:0\">This run has logged nothing that could be judged.</p>"
                     : "<ul class=\"findings\">" + out + "</ul>";
}

int64_t findings_of(const ReportRun& run, HealthLevel level) {
  return std::count_if(run.findings.begin(), run.findings.end(),
                       [level](const auto& each) { return each.level == level; });
}

// "1 problem: end; 2 to watch: spikes, skipped steps".
std::string health_state(const ReportRun& run) {
  if (run.findings.empty()) return "nothing to judge";
  std::string text;
  for (const auto& [level, one, many] :
       {std::tuple(HealthLevel::bad, "problem", "problems"), std::tuple(HealthLevel::watch, "to watch", "to watch")}) {
    std::vector<std::string> topics;
    for (const auto& finding : run.findings) {
      if (finding.level == level) topics.push_back(html_text(finding.topic));
    }
    if (topics.empty()) continue;
    text += (text.empty() ? "" : "; ") + count_of(topics.size(), one, many) + ": " + join(topics);
  }
  return text.empty() ? "healthy" : text;
}

std::string legend(const ReportData& data) {
  std::string out = "<div class=\"keys\" role=\"group\" aria-label=\"Curves\">";
  for (size_t k = 0; k < data.keys.size(); ++k) {
    if (data.keys[k].name.empty()) continue;
    const int dash = data.runs.size() > 1 ? static_cast<int>(k) / kPalette : 0;
    out += "<button type=\"button\" class=\"key\" aria-pressed=\"true\" data-key=\"" + std::to_string(k) + "\">" +
           "<span class=\"swatch c" + std::to_string(data.keys[k].colour) + " d" + std::to_string(dash % 4) +
           "\"></span>" + html_text(data.keys[k].name) + "</button>";
  }
  return out + "</div>";
}

std::string tools(const ReportData& data) {
  const bool has_clock = std::any_of(data.runs.begin(), data.runs.end(),
                                     [](const ReportRun& run) { return run.listed.record.clock.size() > 1; });
  return std::string(
             "<div class=\"tools\" id=\"tools\" hidden><label for=\"smoothing\">Smoothing <input type=\"range\" "
             "id=\"smoothing\" min=\"0\" max=\"0.99\" step=\"0.01\" value=\"0.6\" autocomplete=\"off\"><output "
             "id=\"smoothing-value\">0.60</output></label><span class=\"switch\" role=\"group\" "
             "aria-label=\"Horizontal axis\"><button type=\"button\" data-axis=\"step\" "
             "aria-pressed=\"true\">Steps</button><button type=\"button\" data-axis=\"time\" aria-pressed=\"false\"") +
         (has_clock ? "" : " disabled title=\"These runs recorded no times\"") +
         ">Time</button></span><label><input type=\"checkbox\" id=\"log\" autocomplete=\"off\"> Log "
         "scale</label><label title=\"Show the whole range, with values far from the others\"><input type=\"checkbox\" "
         "id=\"all\" autocomplete=\"off\"> Outliers</label></div>";
}

std::string chart_figure(const Chart& chart, const ReportData& data, size_t number) {
  std::string parts;
  if (data.runs.size() == 1 && chart.series.size() > 1) {
    for (const auto& series : chart.series) {
      parts += named_swatch(series.label, data.keys[static_cast<size_t>(series.key)].colour, series.dash);
    }
    parts = "<span class=\"parts\">" + parts + "</span>";
  }
  return "<figure class=\"card chart\"><figcaption><h3>" + html_text(chart.title) + "</h3>" + parts +
         "<button type=\"button\" class=\"grow\" aria-pressed=\"false\" aria-label=\"Larger\" title=\"Larger\" "
         "hidden>⤢</button></figcaption><div class=\"plot\">" +
         chart_svg(chart, data.keys, number) + "</div></figure>\n";
}

constexpr size_t kMaxCheckpoints = 100;

std::string memory_cell(double bytes) {
  return bytes >= 0 ? bytes_text(static_cast<uint64_t>(bytes)) : kDash;
}

std::string heading(const ReportData& data, size_t run) {
  if (data.runs.size() == 1) return "";
  return "<h3>" +
         named_swatch(data.runs[run].listed.record.name, data.keys[run].colour, static_cast<int>(run) / kPalette) +
         "</h3>";
}

HtmlTable options_table_of(const ReportData& data, const std::vector<OptionRow>& rows, bool only_differing) {
  std::vector<std::string> titles{"Option"};
  for (const auto& run : data.runs) titles.push_back(data.runs.size() == 1 ? "Value" : run.listed.record.name);
  HtmlTable table(titles);
  for (const auto& row : rows) {
    if (only_differing && !row.differs) continue;
    std::vector<std::string> cells{html_code(row.name)};
    for (const std::string* value : row.values) cells.push_back(value == nullptr ? kDash : html_code(*value));
    table.row(cells);
  }
  return table;
}

std::string bar_of(const RunRecord& record) {
  double total = 0;
  for (const auto& part : record.time_split) total += part.second;
  std::string bar;
  std::string keys;
  for (size_t k = 0; k < record.time_split.size(); ++k) {
    const auto& [name, seconds] = record.time_split[k];
    const double share = total > 0 ? seconds / total : 0;
    static constexpr std::array kNames{std::pair{"data", "waiting for data"},
                                       std::pair{"transfer", "transfer to the device"},
                                       std::pair{"communication", "other ranks"}};
    std::string shown = name;
    for (const auto& [key, text] : kNames) {
      if (name == key) shown = text;
    }
    static constexpr std::array kColours{1, 4, 0, 2, 3, 5, 6, 3, 4};  // data stands out
    const std::string colour = "c" + std::to_string(kColours[k % kColours.size()]);
    if (share > 0.0005)
      bar += "<span class=\"" + colour + "\" style=\"width:" + formatted("%.3f", 100 * share) + "%\" title=\"" +
             html_text(shown) + "\"></span>";
    keys += "<li><i class=\"" + colour + "\"></i>" + html_text(shown) + " <b>" + percent(share) +
            "</b> <span class=\"muted\">" + readable_duration(Seconds(seconds)) + "</span></li>";
  }
  return "<div class=\"bar\" aria-hidden=\"true\">" + bar + "</div><ul class=\"barkeys\">" + keys + "</ul>";
}

using Facts = std::vector<std::pair<std::string, std::string>>;

Facts facts_of(const RunRecord& record) {
  Facts facts;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) facts.emplace_back(name, html_text(value));
  };
  if (!record.argv.empty()) facts.emplace_back("Command", html_code(shell_command(record.argv)));
  facts.emplace_back("Folder", html_code(record.folder));
  add("Started", time_text(record.started));
  add(record.status == RunStatus::killed ? "Last seen" : "Ended", time_text(record.ended));
  add("Stop reason", record.stop_reason);
  add("Machine", record.host);
  add("Device", record.device);
  if (record.has_record) add("Ranks", std::to_string(record.world_size));
  add("Strategy", record.strategy);
  add("Precision", record.precision);
  add("Levin", record.version);
  std::string sessions;
  for (const auto& session : record.sessions) {
    if (record.sessions.size() < 2) break;
    const double seconds = session.ended - session.started;
    sessions += (sessions.empty() ? "" : "<br>") + html_text(time_text(session.started)) + ", from step " +
                grouped_number(session.first_step) +
                (session.count > 1 ? ", " + count_of(session.count, "session") : "") +
                (session.status.empty() ? "" : ": " + html_text(session.status)) +
                (seconds >= 0 ? " after " + readable_duration(Seconds(seconds)) : "");
  }
  if (!sessions.empty()) facts.emplace_back("Sessions", sessions);
  return facts;
}

}  // namespace

std::string named_swatch(const std::string& name, int colour, int dash) {
  return "<span class=\"named\"><span class=\"swatch c" + std::to_string(colour) + " d" + std::to_string(dash % 4) +
         "\"></span>" + html_text(name) + "</span>";
}

std::string summary_section(const ReportData& data) {
  const std::vector<ListedRun> listed = listed_runs(data);
  if (data.runs.size() == 1) return tiles_of(data.runs[0], listed);
  return "<section id=\"runs\"><h2>Runs</h2>\n" + table_of_runs(data, listed) + "</section>\n";
}

std::string health_section(const ReportData& data) {
  if (data.runs.size() == 1) return html_section("health", "Is it healthy?", html_card(findings_list(data.runs[0])));
  std::string out;
  for (size_t k = 0; k < data.runs.size(); ++k) {
    const ReportRun& run = data.runs[k];
    const bool opens =
        data.runs.size() <= 2 && findings_of(run, HealthLevel::bad) + findings_of(run, HealthLevel::watch) > 0;
    const char* look = findings_of(run, HealthLevel::bad) > 0     ? "bad"
                       : findings_of(run, HealthLevel::watch) > 0 ? "watch"
                                                                  : "good";
    const char* mark = findings_of(run, HealthLevel::bad) > 0     ? "✕"
                       : findings_of(run, HealthLevel::watch) > 0 ? "!"
                                                                  : "✓";
    out += std::string("<details class=\"card runhealth\"") + (opens ? " open" : "") + "><summary><span class=\"" +
           look + "\"><span class=\"mark\" aria-hidden=\"true\">" + mark + "</span></span>" +
           named_swatch(run.listed.record.name, data.keys[k].colour, static_cast<int>(k) / kPalette) +
           "<span class=\"state\">" + health_state(run) + "</span></summary>" + findings_list(run) + "</details>\n";
  }
  return html_section("health", "Are they healthy?", out);
}

std::string curves_section(const ReportData& data) {
  if (data.charts.empty()) {
    return html_section("curves", "Curves",
                        html_card("<p class=\"pad muted\" style=\"margin:0\">No metric has more than one value.</p>"));
  }
  std::string out = "<div class=\"controls\">" + legend(data) + tools(data) + "</div>\n<div class=\"charts\">\n";
  for (size_t k = 0; k < data.charts.size(); ++k) out += chart_figure(data.charts[k], data, k);
  out +=
      "</div>\n<p class=\"small muted\">Smoothed as in TensorBoard, the values themselves beneath in a lighter line; "
      "curves of at most " +
      std::to_string(kDottedPoints) + " points are drawn without smoothing.";
  if (!data.charts_left_out.empty()) {
    out += " " + count_of(data.charts_left_out.size(), "more metric") +
           " without a chart here: " + html_text(cut_text(join(data.charts_left_out), 400)) + ".";
  }
  return html_section("curves", "Curves", out + "</p>");
}

std::string results_section(const ReportData& data) {
  std::map<std::string, int> metrics;
  for (const auto& run : data.runs) {
    for (const auto& metric : run.listed.record.metrics) ++metrics[metric.first];
  }
  if (metrics.empty()) return "";
  std::vector<std::string> titles{"Metric"};
  if (data.runs.size() == 1) {
    titles.insert(titles.end(), {"#Last", "#At step", "#Lowest", "#At step", "#Highest", "#At step"});
  } else {
    for (const auto& run : data.runs) titles.push_back("#" + run.listed.record.name);
  }
  HtmlTable table(titles);
  const auto step = [](int64_t value) { return value < 0 ? std::string(kDash) : grouped_number(value); };
  size_t shown = 0;
  for (const auto& [name, uses] : metrics) {
    if (++shown > kMaxResultRows) break;
    std::vector<std::string> cells{html_code(name)};
    for (const auto& run : data.runs) {
      const auto found = run.listed.record.metrics.find(name);
      if (found == run.listed.record.metrics.end()) {
        cells.emplace_back(kDash);
        continue;
      }
      const RunMetric& metric = found->second;
      cells.push_back(short_number(metric.last));
      if (data.runs.size() > 1) {
        if (metric.min < metric.max) {
          cells.back() +=
              " <span class=\"range\">" + html_number(metric.min) + " … " + html_number(metric.max) + "</span>";
        }
        continue;
      }
      cells.insert(cells.end(), {step(metric.last_step), html_number(metric.min), step(metric.min_step),
                                 html_number(metric.max), step(metric.max_step)});
    }
    table.row(cells);
  }
  std::string out = table.str();
  if (metrics.size() > kMaxResultRows) {
    out += "<p class=\"pad small muted\" style=\"margin:0\">The first " + std::to_string(kMaxResultRows) + " of " +
           std::to_string(metrics.size()) + " metrics; levin runs --json has all.</p>";
  }
  if (data.runs.size() > 1) out += "<p class=\"pad small muted\" style=\"margin:0\">Last value, lowest … highest.</p>";
  return html_section("results", "Metrics", html_card(out));
}

std::string options_section(const ReportData& data) {
  std::vector<const RunOptions*> all;
  for (const auto& run : data.runs) all.push_back(&run.listed.options);
  const std::vector<OptionRow> rows = compare_options(all);
  if (rows.empty()) return "";
  std::string out;
  const bool several = data.runs.size() > 1;
  if (several) {
    const HtmlTable differing = options_table_of(data, rows, true);
    out +=
        differing.empty() ? "<p class=\"pad muted\" style=\"margin:0\">All options are the same.</p>" : differing.str();
  } else {
    std::vector<OptionRow> own = rows;
    std::erase_if(own, [&](const OptionRow& row) { return find_option(all[0]->hparams, row.name) == nullptr; });
    if (!own.empty()) out += options_table_of(data, own, false).str();
  }
  out += "<details class=\"fold\"><summary>All " + count_of(rows.size(), "option") + "</summary>" +
         options_table_of(data, rows, false).str() + "</details>";
  return html_section("options", several ? "What differs" : "Hyperparameters", html_card(out));
}

std::string time_section(const ReportData& data) {
  std::string out;
  for (size_t k = 0; k < data.runs.size(); ++k) {
    const RunRecord& record = data.runs[k].listed.record;
    if (!record.time_split.empty()) out += html_card(heading(data, k) + bar_of(record), "pad") + "\n";
  }
  return html_section("time", "Where the time went", out.empty() ? "" : "<div class=\"stack\">" + out + "</div>");
}

std::string memory_section(const ReportData& data) {
  const bool several = data.runs.size() > 1;
  std::vector<std::string> titles{"Rank", "Machine", "#Now", "#At most", ""};
  if (several) titles.insert(titles.begin(), "Run");
  HtmlTable table(titles);
  double most = 0;
  for (const auto& run : data.runs) {
    for (const auto& rank : run.listed.record.ranks)
      most = std::max(most, std::isnan(rank.peak_memory_bytes) ? 0 : rank.peak_memory_bytes);
  }
  for (size_t k = 0; k < data.runs.size(); ++k) {
    for (const auto& rank : data.runs[k].listed.record.ranks) {
      if (std::isnan(rank.memory_bytes) && std::isnan(rank.peak_memory_bytes)) continue;
      const double part = most > 0 && rank.peak_memory_bytes > 0 ? 100 * rank.peak_memory_bytes / most : 0;
      std::vector<std::string> cells{std::to_string(rank.rank), html_text(rank.host), memory_cell(rank.memory_bytes),
                                     memory_cell(rank.peak_memory_bytes),
                                     std::string("<div class=\"meter\" aria-hidden=\"true\"><span style=\"width:") +
                                         formatted("%.1f", part) + "%\"></span></div>"};
      if (several) {
        cells.insert(cells.begin(), named_swatch(data.runs[k].listed.record.name, data.keys[k].colour,
                                                 static_cast<int>(k) / kPalette));
      }
      table.row(cells);
    }
  }
  return html_section("memory", "Memory", table.empty() ? "" : html_card(table.str()));
}

std::string checkpoints_section(const ReportData& data) {
  std::string out;
  for (size_t k = 0; k < data.runs.size(); ++k) {
    const RunRecord& record = data.runs[k].listed.record;
    if (record.checkpoints.empty()) continue;
    HtmlTable table({"File", "#Step", "#Epoch", "Saved", record.monitor.empty() ? "#Score" : "#" + record.monitor});
    const size_t first = record.checkpoints.size() > kMaxCheckpoints ? record.checkpoints.size() - kMaxCheckpoints : 0;
    for (size_t c = first; c < record.checkpoints.size(); ++c) {
      const RunCheckpoint& checkpoint = record.checkpoints[c];
      const bool best = !checkpoint.path.empty() && !record.best_path.empty() &&
                        (record.best_path == checkpoint.path || record.best_path.ends_with("/" + checkpoint.path));
      table.row(
          {html_code(checkpoint.path) + (best ? " <span class=\"badge success\">best</span>" : ""),
           checkpoint.step < 0 ? kDash : grouped_number(checkpoint.step),
           checkpoint.epoch < 0 ? kDash : grouped_number(checkpoint.epoch),
           std::isnan(checkpoint.time) ? kDash : "<span class=\"nowrap\">" + time_text(checkpoint.time) + "</span>",
           html_number(checkpoint.score)});
    }
    const std::string head = heading(data, k);
    out += html_card((head.empty() ? "" : "<div class=\"pad\" style=\"padding-bottom:0\">" + head + "</div>") +
                     table.str()) +
           "\n";
  }
  return html_section("checkpoints", "Checkpoints", out.empty() ? "" : "<div class=\"stack\">" + out + "</div>");
}

std::string system_section(const ReportData& data) {
  std::string out;
  for (size_t k = 0; k < data.runs.size(); ++k) {
    std::string facts;
    for (const auto& [name, value] : facts_of(data.runs[k].listed.record))
      facts += "<dt>" + name + "</dt><dd>" + value + "</dd>";
    out += html_card(heading(data, k) + "<dl class=\"facts\">" + facts + "</dl>", "pad") + "\n";
  }
  return html_section("system", "System",
                      "<div class=\"" + std::string(data.runs.size() > 1 ? "two" : "stack") + "\">" + out + "</div>");
}

std::string errors_section(const ReportData& data) {
  std::string out;
  const auto add = [&](size_t run, const std::string& text) {
    const std::string head = heading(data, run);
    out += html_card((head.empty() ? "" : "<div class=\"pad\" style=\"padding-bottom:0\">" + head + "</div>") +
                     "<pre class=\"error\">" + html_text(text) + "</pre>") +
           "\n";
  };
  for (size_t k = 0; k < data.runs.size(); ++k) {
    const ReportRun& run = data.runs[k];
    if (!run.listed.record.error.empty()) add(k, run.listed.record.error);
    if (!run.listed.record.unreadable.empty()) add(k, run.listed.record.unreadable);
    for (const auto& problem : run.listed.options.problems) add(k, problem);
    if (run.bad_lines > 0) add(k, count_of(run.bad_lines, "line") + " of the metrics could not be read.");
  }
  return html_section("errors", "Errors", out.empty() ? "" : "<div class=\"stack\">" + out + "</div>");
}

}  // namespace levin
