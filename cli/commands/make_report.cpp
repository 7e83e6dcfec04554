#include "levin/cli/commands/make_report.h"

#include <optional>

#include "levin/cli/commands/help_text.h"
#include "levin/cli/commands/report.h"
#include "levin/cli/runs/report_data.h"
#include "levin/cli/runs/report_page.h"
#include "levin/core/console.h"
#include "levin/core/count_of.h"
#include "levin/core/error.h"
#include "levin/core/exit_codes.h"
#include "levin/core/files.h"

namespace levin {

namespace {

constexpr size_t kMostReportRuns = 100;

struct MakeReportWords {
  std::vector<std::string> runs = {};
  std::optional<std::string> output = std::nullopt;
  bool help = false;
};

MakeReportWords read_make_report_words(const std::vector<std::string>& words, Problems& problems) {
  MakeReportWords read;
  for (size_t k = 0; k < words.size(); ++k) {
    const std::string& word = words[k];
    if (word == "-h" || word == "--help") {
      read.help = true;
    } else if (word.starts_with("--output=")) {
      read.output = word.substr(9);
    } else if (word == "--output" || word == "-o") {
      if (k + 1 == words.size()) {
        problems.add({}, word, "no value follows. Write --output report.html.");
      } else {
        read.output = words[++k];
      }
    } else if (word.starts_with("-") && word.size() > 1) {
      problems.add({}, "\"" + cut_text(word) + "\"",
                   "unknown option." + did_you_mean(word.substr(0, word.find('=')), {"--output", "--help"}) +
                       " Known: --output.");
    } else {
      read.runs.push_back(word);
    }
  }
  if (read.help) return read;
  if (read.runs.empty()) problems.add({}, "report", "no run was named. Write levin report levin_logs/version_0.");
  if (read.output == "") problems.add({}, "--output", "the file's name is empty. Write --output report.html.");
  return read;
}

// A run's folder, or all runs below a folder that is none.
void add_folders_of(const std::string& word, std::vector<std::string>& folders, Problems& problems) {
  if (is_run_folder(word)) {
    folders.push_back(word);
    return;
  }
  const FoundRuns found = find_run_folders(word);
  if (found.folders.empty()) {
    problems.add({}, cut_text(word, 200),
                 "there is no run here. A run's folder has run.json, or metrics.csv and hparams.yaml; levin runs lists "
                 "those below a folder.");
  }
  folders.insert(folders.end(), found.folders.begin(), found.folders.end());
}

std::vector<std::string> report_folders(const std::vector<std::string>& words, Problems& problems) {
  std::vector<std::string> folders;
  for (const auto& word : words) {
    try {
      add_folders_of(word, folders, problems);
    } catch (const Error& error) {
      problems.add({}, "", error.what());
    }
  }
  std::vector<std::string> once = distinct_folders(folders);
  if (once.size() > kMostReportRuns) {
    problems.add({}, "report",
                 count_of(static_cast<int64_t>(once.size()), "run") + " are more than a page can show; name at most " +
                     std::to_string(kMostReportRuns) + ". levin runs --filter and --sort find the interesting ones.");
  }
  return once;
}

}  // namespace

std::string make_report_usage(int width) {
  return "levin report RUN… [--output report.html]\n\n" +
         wrapped(
             "Writes one HTML page about a run: whether it is healthy, its curves, its options, where the time and "
             "the memory went, its checkpoints. Several runs are laid over each other, and what differs is listed. "
             "RUN is a run's folder, or a folder with runs below it.",
             width) +
         "\n" +
         wrapped("The page needs no network and no server; without JavaScript it shows the same, unmoved.", width);
}

int run_make_report(const std::vector<std::string>& words, int width) {
  Console& console = Console::instance();
  Problems problems;
  const MakeReportWords read = read_make_report_words(words, problems);
  if (read.help) {
    console.print(make_report_usage(width));
    return kExitOk;
  }
  const std::vector<std::string> folders = report_folders(read.runs, problems);
  if (!problems.empty()) {
    return report_problems(problems, count_of(static_cast<int64_t>(problems.size()), "problem") +
                                         "; nothing was written. See levin report --help.");
  }
  try {
    const std::string page = report_page(collect_report(folders));
    const std::string file = read.output.value_or("report.html");
    read.output ? write_output(file, page) : void(write_file_durably(file, page));
    console.print(cut_text(file, 400) + ": " + count_of(static_cast<int64_t>(folders.size()), "run") + ", " +
                  std::to_string((page.size() + 1023) / 1024) + " KiB");
    return kExitOk;
  } catch (const Error& error) {
    console.error(error.what());
    return kExitRunFailed;
  }
}

}  // namespace levin
