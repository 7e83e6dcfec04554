#include "levin/cli/commands/top.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <thread>

#include "levin/cli/commands/command_words.h"
#include "levin/cli/commands/help_text.h"
#include "levin/cli/commands/report.h"
#include "levin/cli/commands/top_screen.h"
#include "levin/cli/commands/top_view.h"
#include "levin/cli/runs/metrics_reader.h"
#include "levin/cli/runs/run_folder.h"
#include "levin/core/console.h"
#include "levin/core/count_of.h"
#include "levin/core/exit_codes.h"
#include "levin/core/wall_clock.h"

namespace levin {

namespace {

std::string top_usage(int width) {
  return "levin top [RUN] [options]\n\n" +
         wrapped(
             "Shows a live run: its progress, rates and time, curves of its metrics and all its ranks. RUN is the "
             "folder of a run (levin_logs/version_0), or a folder above several, whose newest run is taken; without "
             "it the working directory. q quits, ← and → choose a curve, ↑ and ↓ its metric. Where standard output "
             "is no terminal, one line is printed each time until the run ends.",
             width) +
         "\n" + options_table(describe_options<TopOptions>(), width);
}

// The run that is looked at, and why it is this one.
struct ChosenRun {
  std::string folder;
  std::string note;
};

ChosenRun choose_run(const std::string& folder) {
  std::error_code code;
  if (!std::filesystem::exists(folder, code)) {
    throw Error("levin top: there is no folder " + cut_text(folder, 300) +
                ". Give the folder of a run, such as levin_logs/version_0, or one above it.");
  }
  if (is_run_folder(folder)) return {folder, ""};
  const FoundRuns found = find_run_folders(folder);
  if (found.folders.empty()) {
    throw Error("levin top: no run is in " + cut_text(folder, 300) +
                ": the folder of a run has a run.json, or metrics.csv and hparams.yaml, and none was found in it or "
                "below. A run makes its folder when it starts.");
  }
  std::string newest = found.folders.back();  // of those without a time the last by name
  double started = -1;
  for (const auto& one : found.folders) {
    const RunRecord record = read_run_record(one);
    if (record.started < started || std::isnan(record.started)) continue;
    started = record.started;
    newest = one;
  }
  if (found.folders.size() == 1) return {newest, "the only run in " + folder + " is " + newest};
  const auto count = static_cast<int64_t>(found.folders.size());
  return {newest, "the newest of " + count_of(count, "run") + " in " + folder + " is " + newest};
}

int show_lines(const ChosenRun& chosen, double every) {
  Console& console = Console::instance();
  MetricsReader metrics(chosen.folder);
  if (!chosen.note.empty()) console.print(chosen.note);
  while (true) {
    const RunRecord run = read_run_record(chosen.folder);  // before the metrics: an ended run has written them all
    metrics.update();
    console.print(plain_line(run, metrics.series(), seconds_since_1970()));
    if (!is_active(run)) {
      console.print("the run has ended: " + end_text(run));
      return kExitOk;
    }
    if (!console.output_problem().empty()) return kExitOk;  // "levin top RUN | head"
    std::this_thread::sleep_for(std::chrono::duration<double>(every));
  }
}

void change_curve(TopCurves& curves, const std::vector<std::string>& metrics, TopKey key) {
  if (curves.names.empty() || metrics.empty()) return;
  const size_t count = curves.names.size();
  if (key == TopKey::left) curves.chosen = (curves.chosen + count - 1) % count;
  if (key == TopKey::right) curves.chosen = (curves.chosen + 1) % count;
  if (key != TopKey::up && key != TopKey::down) return;
  std::string& name = curves.names[curves.chosen];
  const auto found = std::find(metrics.begin(), metrics.end(), name);
  const auto at = static_cast<size_t>(found == metrics.end() ? 0 : found - metrics.begin());
  name = metrics[(at + (key == TopKey::down ? 1 : metrics.size() - 1)) % metrics.size()];
}

int show_screen(const ChosenRun& chosen, double every) {
  using Clock = std::chrono::steady_clock;
  MetricsReader metrics(chosen.folder);
  TopScreen screen;
  TopCurves curves;
  RunRecord run;
  std::vector<std::string> names;
  auto next_look = Clock::now();
  while (true) {
    const auto now = Clock::now();
    if (now >= next_look) {
      run = read_run_record(chosen.folder);
      metrics.update();
      names = metrics_in_order(metrics.series());
      next_look = now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(every));
    }
    choose_curves(curves, names, std::min(curves_for(screen.columns()), std::max<size_t>(1, names.size())));
    const std::string note = is_active(run) ? chosen.note : "the run has ended: " + end_text(run);
    screen.draw(top_view(run, metrics.series(), curves, screen.columns(), screen.rows(), seconds_since_1970(), note));
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next_look - Clock::now()).count();
    const TopKey key = screen.wait(static_cast<int>(std::clamp<int64_t>(left, 1, 1000)));
    if (key == TopKey::quit) return kExitOk;
    change_curve(curves, names, key);
  }
}

}  // namespace

int run_top(const std::vector<std::string>& words, int width) {
  Problems problems;
  const CommandWords read = read_command_words(words, field_names<TopOptions>(), {"plain"}, problems);
  if (read.help) {
    Console::instance().print(top_usage(width));
    return kExitOk;
  }
  TopOptions options;
  read_options(read.options, options, "", problems);
  for (size_t k = 0; k < read.run.size(); ++k) {
    if (read.run[k].starts_with("-")) {
      problems.add({}, "\"" + cut_text(read.run[k]) + "\"",
                   "unknown option." + did_you_mean(read.run[k], {"--plain", "--every"}) + " See levin top --help.");
    } else if (k > 0) {
      problems.add({}, "\"" + cut_text(read.run[k]) + "\"", "a second run. Give one folder.");
    }
  }
  if (!problems.empty()) return report_problems(problems, "nothing is shown. See levin top --help.");
  const ChosenRun chosen = choose_run(read.run.empty() ? "." : read.run[0]);
  return options.plain || !has_screen() ? show_lines(chosen, options.every) : show_screen(chosen, options.every);
}

}  // namespace levin
