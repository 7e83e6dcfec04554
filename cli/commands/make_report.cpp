#include "levin/cli/commands/make_report.h"

#include <algorithm>
#include <optional>

#include "levin/cli/commands/help_text.h"
#include "levin/cli/commands/report.h"
#include "levin/cli/config/arguments.h"
#include "levin/cli/runs/report_data.h"
#include "levin/cli/runs/report_page.h"
#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/options/units.h"
#include "levin/core/process/console.h"
#include "levin/core/process/main_guard.h"

namespace levin {

namespace {

constexpr size_t kMaxReportRuns = 100;

struct MakeReportOptions {
  std::optional<std::string> output = std::nullopt;

  static auto fields() {
    return levin::fields(field("output", &MakeReportOptions::output, "the page's file, -o FILE; default: report.html"));
  }
};

// A run's folder, or all runs below a folder that is none.
void add_folders_of(const std::string& path, std::vector<std::string>& folders, Problems& problems) {
  if (is_run_folder(path)) {
    folders.push_back(path);
    return;
  }
  const FoundRuns found = find_run_folders(path);
  if (found.folders.empty()) {
    problems.add({}, cut_text(path, 200),
                 "no run found. A run's folder has run.json, or metrics.csv and hparams.yaml; levin runs lists "
                 "those below a folder.");
  }
  folders.insert(folders.end(), found.folders.begin(), found.folders.end());
}

std::vector<std::string> report_folders(const std::vector<std::string>& paths, Problems& problems) {
  std::vector<std::string> folders;
  for (const auto& path : paths) {
    try {
      add_folders_of(path, folders, problems);
    } catch (const Error& error) {
      problems.add({}, "", error.what());
    }
  }
  std::vector<std::string> once = distinct_folders(folders);
  if (once.size() > kMaxReportRuns) {
    problems.add({}, "report",
                 count_of(once.size(), "run") + " are more than a page can show; name at most " +
                     std::to_string(kMaxReportRuns) + ". levin runs --filter and --sort find the interesting ones.");
  }
  return once;
}

std::string make_report_usage(int width) {
  return "levin report RUN… [--output report.html]\n\n" +
         wrapped(
             "Writes one HTML page about a run: whether it is healthy, its curves, its options, where the time and "
             "the memory went, its checkpoints. Several runs are laid over each other, and what differs is listed. "
             "RUN is a run's folder, or a folder with runs below it.",
             width) +
         "\n" + wrapped("The page needs no network and no server; without JavaScript its charts are static.", width);
}

}  // namespace

std::vector<OwnOption> own_make_report_options() {
  return own_options(MakeReportOptions::fields());
}

int run_make_report(const std::vector<std::string>& arguments, int width) {
  Console& console = Console::instance();
  Problems problems;
  std::vector<std::string> written = arguments;
  std::replace(written.begin(), written.end(), std::string("-o"), std::string("--output"));
  MakeReportOptions options;
  const SplitArguments read = read_own_options(written, options, problems);
  if (read.help) return print_usage(make_report_usage(width));
  refuse_rest(read.rest, own_options(MakeReportOptions::fields()), SIZE_MAX, "", problems);
  if (options.output == "") problems.add({}, "--output", "the file's name is empty. Write --output report.html.");
  if (read.rest.empty()) problems.add({}, "report", "no run was named. Write levin report levin_logs/version_0.");
  const std::vector<std::string> folders = problems.empty() ? report_folders(read.rest, problems) : read.rest;
  if (!problems.empty()) {
    return report_problems(problems,
                           count_of(problems.size(), "problem") + "; nothing was written. See levin report --help.");
  }
  try {
    const std::string page = report_page(collect_report(folders));
    const std::string file = options.output.value_or("report.html");
    options.output ? write_output(file, page) : void(write_file_durably(file, page));
    console.print(cut_text(file, 400) + ": " + count_of(folders.size(), "run") + ", " + bytes_text(page.size()));
    return kExitOk;
  } catch (const Error& error) {
    console.error(error.what());
    return kExitRunFailed;
  }
}

}  // namespace levin
