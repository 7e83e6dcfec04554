#include "levin/cli/commands/list_runs.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <sstream>

#include "levin/cli/commands/help_text.h"
#include "levin/cli/commands/report.h"
#include "levin/cli/commands/send_logs.h"
#include "levin/cli/runs/run_columns.h"
#include "levin/cli/runs/run_table.h"
#include "levin/core/console.h"
#include "levin/core/count_of.h"
#include "levin/core/error.h"
#include "levin/core/exit_codes.h"

namespace levin {

namespace {

struct ListRunsWords {
  std::vector<std::string> folders = {};
  std::vector<std::string> metrics = {};
  std::vector<std::string> filters = {};
  std::string sort = "-started";
  std::optional<size_t> limit = std::nullopt;
  bool json = false;
  bool help = false;
};

constexpr std::array kListRunsHelp{
    std::pair{"--metrics A,B", "best and last value of these metrics too"},
    std::pair{"--sort NAME", "sort by a column; -NAME: descending. Default: -started"},
    std::pair{"--filter CONDITION",
              "only runs with e.g. \"lr>0.001\", status=failed, \"val_loss<0.5\", "
              "\"started>2026-11-01\", \"duration>1h\", \"name~resnet\"; several: all must hold"},
    std::pair{"--limit N", "the first N only"},
    std::pair{"--json", "everything that is known, as JSON"},
};

std::vector<std::string> comma_separated(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

void set_limit(const std::string& value, ListRunsWords& read, Problems& problems) {
  size_t limit = 0;
  const auto result = std::from_chars(value.data(), value.data() + value.size(), limit);
  if (result.ec != std::errc() || result.ptr != value.data() + value.size() || limit == 0) {
    problems.add({}, "--limit", "\"" + cut_text(value) + "\" is no number of runs. Write --limit 20.");
  } else {
    read.limit = limit;
  }
}

ListRunsWords read_list_runs_words(const std::vector<std::string>& words, Problems& problems) {
  ListRunsWords read;
  for (size_t k = 0; k < words.size(); ++k) {
    const std::string& word = words[k];
    const size_t equals = std::min(word.find('='), word.size());
    const std::string name = word.substr(0, word.starts_with("--") ? equals : word.size());
    if (word == "-h" || word == "--help") {
      read.help = true;
    } else if (word == "--json") {
      read.json = true;
    } else if (name == "--metrics" || name == "--sort" || name == "--filter" || name == "--limit") {
      if (equals == word.size() && k + 1 == words.size()) {
        problems.add({}, name, "no value follows. Write " + name + "=VALUE.");
        break;
      }
      const std::string value = equals < word.size() ? word.substr(equals + 1) : words[++k];
      if (name == "--metrics") read.metrics = comma_separated(value);
      if (name == "--sort") read.sort = value;
      if (name == "--filter") read.filters.push_back(value);
      if (name == "--limit") set_limit(value, read, problems);
    } else if (word.starts_with("-") && word.size() > 1) {
      const std::vector<std::string> known{"--metrics", "--sort", "--filter", "--limit", "--json"};
      problems.add({}, "\"" + cut_text(word) + "\"",
                   "unknown option." + did_you_mean(name, known) + " Known: " + join(known) + ".");
    } else {
      read.folders.push_back(word);
    }
  }
  if (read.folders.empty()) read.folders = {"."};
  return read;
}

void warn_about(const ListedRun& run) {
  Console& console = Console::instance();
  if (!run.record.unreadable.empty()) console.warn(cut_text(run.record.unreadable, 400));
  for (const auto& problem : run.options.problems) console.warn(cut_text(problem, 400));
}

// Throws Error for a filter, an order or a metric that names no column.
std::vector<ListedRun> chosen_runs(std::vector<ListedRun> runs, const ListRunsWords& words) {
  const RunColumns columns(runs);
  for (const auto& metric : words.metrics) (void)columns.find("metrics." + metric, "--metrics");
  std::vector<std::function<bool(const ListedRun&)>> conditions;
  for (const auto& filter : words.filters) conditions.push_back(parse_filter(filter, columns));
  sort_runs(runs, words.sort);
  for (const auto& condition : conditions) std::erase_if(runs, [&](const ListedRun& run) { return !condition(run); });
  if (words.limit && runs.size() > *words.limit) {
    runs.erase(runs.begin() + static_cast<std::ptrdiff_t>(*words.limit), runs.end());
  }
  return runs;
}

}  // namespace

std::string list_runs_usage(int width) {
  std::string out = "levin runs [FOLDER…] [options]\nlevin runs send [FOLDER…]\n\n" +
                    wrapped(
                        "All runs at or below each FOLDER (default: the current one), one line each: what they were "
                        "called, how they ended, in which hyperparameters they differ, and what came of them.",
                        width) +
                    "\n";
  for (const auto& [option, doc] : kListRunsHelp) out += std::string("  ") + option + "\n" + wrapped(doc, width, 6);
  return out + "\n" +
         wrapped(
             "A column is name, status, started, ended, duration, best, epoch, step, …; a metric (its last value; "
             "NAME.min and NAME.max); a hyperparameter; or a key of the configuration: trainer.max_epochs.",
             width);
}

int run_list_runs(const std::vector<std::string>& words, int width) {
  Console& console = Console::instance();
  if (!words.empty() && words[0] == "send") return run_send_logs({words.begin() + 1, words.end()}, width);
  Problems problems;
  const ListRunsWords read = read_list_runs_words(words, problems);
  if (read.help) {
    console.print(list_runs_usage(width));
    return kExitOk;
  }
  if (!problems.empty()) {
    return report_problems(problems,
                           count_of(static_cast<int64_t>(problems.size()), "problem") + ". See levin runs --help.");
  }
  try {
    FoundRuns found;
    for (const auto& folder : read.folders) {
      const FoundRuns here = find_run_folders(folder);
      found.folders.insert(found.folders.end(), here.folders.begin(), here.folders.end());
      found.unreadable.insert(found.unreadable.end(), here.unreadable.begin(), here.unreadable.end());
    }
    for (const auto& line : found.unreadable) console.warn(cut_text(line, 400) + ". Runs in it are not listed.");
    const std::vector<std::string> folders = distinct_folders(found.folders);
    const size_t all = folders.size();
    // Names are relative to the folder; among several they begin with it.
    std::vector<ListedRun> runs = read_runs(folders, read.folders.size() == 1 ? read.folders[0] : "");
    for (const auto& run : runs) warn_about(run);
    if (all > 0) runs = chosen_runs(std::move(runs), read);
    if (read.json) {
      console.print(runs_as_json(runs));
    } else if (runs.empty()) {
      console.print(all == 0 ? "No runs below " + cut_text(join(read.folders), 200) +
                                   ". A run's folder has run.json, or metrics.csv and hparams.yaml."
                             : "No run matches; there are " + std::to_string(all) + ".");
    } else {
      std::string table = run_table(runs, {width, read.metrics});
      table.pop_back();
      console.print(table);
    }
    return kExitOk;
  } catch (const Error& error) {
    console.error(error.what());
    return kExitBadConfig;
  }
}

}  // namespace levin
