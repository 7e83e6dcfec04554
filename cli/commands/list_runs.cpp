#include "levin/cli/commands/list_runs.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>

#include "levin/cli/commands/help_text.h"
#include "levin/cli/commands/report.h"
#include "levin/cli/config/arguments.h"
#include "levin/cli/runs/run_folder.h"
#include "levin/cli/runs/run_table.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/main_guard.h"
#include "levin/loggers/send_outbox.h"

namespace levin {

namespace {

constexpr Seconds kPatience = Seconds(60);  // of each run

std::string send_logs_usage(int width) {
  return "levin runs send [FOLDER…]\n\n" +
         wrapped(
             "Sends what runs at or below each FOLDER (default: the current one) logged and could not send, because "
             "their server did not answer: values of MLFlowLogger. Credentials come from the environment, as in a run, "
             "but are sent only to the server that MLFLOW_TRACKING_URI names.",
             width);
}

// Whether nothing is left. A folder that is not in order does not keep the values of the others.
bool send_one(const std::string& folder) {
  Console& console = Console::instance();
  OutboxReport report;
  try {
    report = send_outbox(folder, kPatience);
  } catch (const Error& error) {
    console.error(error.what());
    return false;
  }
  std::string line = folder + ": sent " + count_of(report.delivered, "value");
  if (report.waiting > 0) line += ", " + std::to_string(report.waiting) + " are left: " + report.problem;
  if (report.refused > 0) line += "; the server refused " + std::to_string(report.refused);
  if (report.damaged > 0) line += "; " + std::to_string(report.damaged) + " could not be sent";
  console.print(line);
  return report.waiting == 0;
}

struct ListRunsOptions {
  std::string metrics = "";
  std::string sort = "-started";
  std::vector<std::string> filter = {};
  std::optional<int64_t> limit = std::nullopt;
  bool json = false;

  static auto fields() {
    using O = ListRunsOptions;
    return levin::fields(
        field("metrics", &O::metrics, "best and last value of these metrics too, A,B"),
        field("sort", &O::sort, "sort by a column; -NAME: descending"),
        field("filter", &O::filter,
              "only runs with e.g. \"lr>0.001\", status=failed, \"val_loss<0.5\", \"started>2026-11-01\", "
              "\"duration>1h\", \"name~resnet\"; several: all must hold"),
        field("limit", &O::limit, "the first N only")
            .check([](const std::optional<int64_t>& limit) { return !limit || *limit >= 1; }, "a number of runs, >= 1"),
        field("json", &O::json, "everything that is known, as JSON"));
  }
};

void warn_about(const ListedRun& run) {
  Console& console = Console::instance();
  if (!run.record.unreadable.empty()) console.warn(cut_text(run.record.unreadable, 400));
  for (const auto& problem : run.options.problems) console.warn(cut_text(problem, 400));
}

// Throws Error for a filter, an order or a metric that names no column.
std::vector<ListedRun> chosen_runs(std::vector<ListedRun> runs, const ListRunsOptions& options,
                                   const std::vector<std::string>& metrics) {
  const RunColumns columns(runs);
  for (const auto& metric : metrics) (void)columns.find("metrics." + metric, "--metrics");
  std::vector<std::function<bool(const ListedRun&)>> conditions;
  for (const auto& filter : options.filter) conditions.push_back(parse_filter(filter, columns));
  sort_runs(runs, options.sort);
  for (const auto& condition : conditions) std::erase_if(runs, [&](const ListedRun& run) { return !condition(run); });
  if (options.limit && std::ssize(runs) > *options.limit) runs.erase(runs.begin() + *options.limit, runs.end());
  return runs;
}

std::string list_runs_usage(int width) {
  std::string out = "levin runs [FOLDER…] [options]\nlevin runs send [FOLDER…]\n\n" +
                    wrapped(
                        "All runs at or below each FOLDER (default: the current one), one line each: what they were "
                        "called, how they ended, in which hyperparameters they differ, and what came of them.",
                        width) +
                    "\n" + own_options_table(describe_options<ListRunsOptions>(), width);
  return out + "\n" +
         wrapped(
             "A column is name, status, started, ended, duration, best, epoch, step, …; a metric (its last value; "
             "NAME.min and NAME.max); a hyperparameter; or a key of the configuration: trainer.max_epochs.",
             width);
}

// "levin runs send": sends what runs could not send to their servers. Returns the exit status: kExitPartly if something
// is left.
int run_send_logs(const std::vector<std::string>& arguments, int width) {
  Console& console = Console::instance();
  Problems problems;
  const SplitArguments read = split_arguments(arguments, {}, problems);
  if (read.help) return print_usage(send_logs_usage(width));
  refuse_rest(read.rest, {}, SIZE_MAX, "", problems);
  if (!problems.empty()) {
    return report_problems(problems, "levin runs send takes folders only. See levin runs send --help.");
  }
  bool is_done = true;
  std::vector<std::string> found;
  for (const std::string& folder : read.rest.empty() ? std::vector<std::string>{"."} : read.rest) {
    const std::vector<std::string> here = outbox_folders(folder);
    found.insert(found.end(), here.begin(), here.end());
  }
  const std::vector<std::string> folders = distinct_folders(found);
  for (const std::string& folder : folders) is_done = send_one(folder) && is_done;
  if (folders.empty()) console.print("Nothing waits to be sent.");
  return is_done ? kExitOk : kExitPartly;
}

}  // namespace

std::vector<OwnOption> own_list_runs_options() {
  return own_options(ListRunsOptions::fields());
}

int run_list_runs(const std::vector<std::string>& arguments, int width) {
  Console& console = Console::instance();
  if (!arguments.empty() && arguments[0] == "send") {
    return run_send_logs({arguments.begin() + 1, arguments.end()}, width);
  }
  Problems problems;
  ListRunsOptions options;
  SplitArguments read = read_own_options(arguments, options, problems);
  if (read.help) return print_usage(list_runs_usage(width));
  refuse_rest(read.rest, own_options(ListRunsOptions::fields()), SIZE_MAX, "", problems);
  if (!problems.empty()) {
    return report_problems(problems, count_of(problems.size(), "problem") + ". See levin runs --help.");
  }
  if (read.rest.empty()) read.rest = {"."};
  std::vector<std::string> metrics = split(options.metrics, ',');
  std::erase(metrics, "");
  try {
    FoundRuns found;
    for (const auto& folder : read.rest) {
      const FoundRuns here = find_run_folders(folder);
      found.folders.insert(found.folders.end(), here.folders.begin(), here.folders.end());
      found.unreadable.insert(found.unreadable.end(), here.unreadable.begin(), here.unreadable.end());
    }
    for (const auto& line : found.unreadable) console.warn(cut_text(line, 400) + ". Runs in it are not listed.");
    const std::vector<std::string> folders = distinct_folders(found.folders);
    const size_t all = folders.size();
    // Names are relative to the folder; among several they begin with it.
    std::vector<ListedRun> runs = read_runs(folders, read.rest.size() == 1 ? read.rest[0] : "");
    for (const auto& run : runs) warn_about(run);
    if (all > 0) runs = chosen_runs(std::move(runs), options, metrics);
    if (options.json) {
      console.print(runs_as_json(runs));
    } else if (runs.empty()) {
      console.print(all == 0 ? "No runs below " + cut_text(join(read.rest), 200) +
                                   ". A run's folder has run.json, or metrics.csv and hparams.yaml."
                             : "No run matches; there are " + std::to_string(all) + ".");
    } else {
      std::string table = run_table(runs, {width, metrics});
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
