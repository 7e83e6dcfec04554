#include "levin/cli/runs/report_details.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "levin/cli/runs/html_table.h"
#include "levin/cli/runs/html_text.h"
#include "levin/cli/runs/report_sections.h"
#include "levin/cli/runs/run_table.h"
#include "levin/core/count_of.h"
#include "levin/core/duration.h"
#include "levin/core/error.h"

namespace levin {

namespace {

constexpr size_t kMostCheckpoints = 100;
constexpr const char* kNothing = "<span class=\"absent\">–</span>";

std::string percent_text(double share) {
  std::array<char, 32> text = {};
  std::snprintf(text.data(), text.size(), share >= 0.0995 || share == 0 ? "%.0f %%" : "%.1f %%", 100 * share);
  return text.data();
}

std::string bytes_text_of(double bytes) {
  if (!(bytes >= 0)) return kNothing;
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  std::array<char, 40> text = {};
  std::snprintf(text.data(), text.size(),
                bytes < 10 && unit > 0    ? "%.2f %s"
                : bytes < 100 && unit > 0 ? "%.1f %s"
                                          : "%.0f %s",
                bytes, kUnits[unit]);
  return text.data();
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
    for (const std::string* value : row.values) cells.push_back(value == nullptr ? kNothing : html_code(*value));
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
    for (const auto& [key, words] : kNames) {
      if (name == key) shown = words;
    }
    static constexpr std::array kColours{1, 4, 0, 2, 3, 5, 6, 3, 4};  // data stands out
    const std::string colour = "c" + std::to_string(kColours[k % kColours.size()]);
    std::array<char, 32> width = {};
    std::snprintf(width.data(), width.size(), "%.3f", 100 * share);
    if (share > 0.0005)
      bar += "<span class=\"" + colour + "\" style=\"width:" + width.data() + "%\" title=\"" + html_text(shown) +
             "\"></span>";
    keys += "<li><i class=\"" + colour + "\"></i>" + html_text(shown) + " <b>" + percent_text(share) +
            "</b> <span class=\"muted\">" + readable_duration(Seconds(seconds)) + "</span></li>";
  }
  return "<div class=\"bar\" aria-hidden=\"true\">" + bar + "</div><ul class=\"barkeys\">" + keys + "</ul>";
}

std::string command_text(const RunRecord& record) {
  std::string text;
  for (const auto& word : record.argv) {
    const bool plain = !word.empty() && word.find_first_of(" \t\n\"'\\$`&|;<>()*?#~!{}[]") == std::string::npos;
    std::string quoted = "'";
    for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text += (text.empty() ? "" : " ") + (plain ? word : quoted + "'");
  }
  return text;
}

using Facts = std::vector<std::pair<std::string, std::string>>;

Facts facts_of(const RunRecord& record) {
  Facts facts;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) facts.emplace_back(name, html_text(value));
  };
  if (!record.argv.empty()) facts.emplace_back("Command", html_code(command_text(record)));
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
                grouped_number(session.first_step) + (session.status.empty() ? "" : ": " + html_text(session.status)) +
                (seconds >= 0 ? " after " + readable_duration(Seconds(seconds)) : "");
  }
  if (!sessions.empty()) facts.emplace_back("Sessions", sessions);
  return facts;
}

}  // namespace

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
  out += "<details class=\"fold\"><summary>All " + count_of(static_cast<int64_t>(rows.size()), "option") +
         "</summary>" + options_table_of(data, rows, false).str() + "</details>";
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
      std::array<char, 32> width = {};
      std::snprintf(width.data(), width.size(), "%.1f",
                    most > 0 && rank.peak_memory_bytes > 0 ? 100 * rank.peak_memory_bytes / most : 0);
      std::vector<std::string> cells{std::to_string(rank.rank), html_text(rank.host), bytes_text_of(rank.memory_bytes),
                                     bytes_text_of(rank.peak_memory_bytes),
                                     std::string("<div class=\"meter\" aria-hidden=\"true\"><span style=\"width:") +
                                         width.data() + "%\"></span></div>"};
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
    const size_t first =
        record.checkpoints.size() > kMostCheckpoints ? record.checkpoints.size() - kMostCheckpoints : 0;
    for (size_t c = first; c < record.checkpoints.size(); ++c) {
      const RunCheckpoint& checkpoint = record.checkpoints[c];
      const bool best = !checkpoint.path.empty() && !record.best_path.empty() &&
                        (record.best_path == checkpoint.path || record.best_path.ends_with("/" + checkpoint.path));
      table.row(
          {html_code(checkpoint.path) + (best ? " <span class=\"badge success\">best</span>" : ""),
           checkpoint.step < 0 ? kNothing : grouped_number(checkpoint.step),
           checkpoint.epoch < 0 ? kNothing : grouped_number(checkpoint.epoch),
           std::isnan(checkpoint.time) ? kNothing : "<span class=\"nowrap\">" + time_text(checkpoint.time) + "</span>",
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
