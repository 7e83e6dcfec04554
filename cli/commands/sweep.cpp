#include "levin/cli/commands/sweep.h"

#include <array>
#include <filesystem>

#include "levin/cli/commands/help_text.h"
#include "levin/cli/commands/report.h"
#include "levin/cli/commands/submit_script.h"
#include "levin/cli/commands/sweep_folder.h"
#include "levin/cli/commands/sweep_setup.h"
#include "levin/cli/sweep/make_searcher.h"
#include "levin/cli/sweep/runner.h"
#include "levin/cli/sweep/sweep_tables.h"
#include "levin/core/console.h"
#include "levin/core/count_of.h"
#include "levin/core/exit_codes.h"
#include "levin/core/files.h"
#include "levin/core/run_command.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

constexpr std::array kSweepHelp{
    std::pair{"FILE [--folder FOLDER] [overrides…]",
              "run the sweep of this file, or continue it; the folder is named like the file. An override is of a key "
              "of the file (--max_trials=40, --search.method=sobol) or of the run (--trainer.max_epochs=5)"},
    std::pair{"FILE --prepare", "check everything and make the folder, and run nothing"},
    std::pair{"FILE --slurm [--slurm-option NAME=VALUE]",
              "run the trials as tasks of a Slurm array (grid, random, sobol)"},
    std::pair{"status FOLDER [--json]", "how far it is, and a table of the trials"},
    std::pair{"best FOLDER [--json]", "the best trial: its options, its configuration and its checkpoint"},
    std::pair{"report FOLDER [--output FILE]", "write a page about it, FOLDER/report.html"},
    std::pair{"ask FOLDER [--params JSON] [--json]", "add a trial, with parameters chosen elsewhere or by the sweep"},
    std::pair{"tell FOLDER TRIAL --value X", "the metric of a trial that was run elsewhere"},
    std::pair{"wait FOLDER TRIAL [--timeout S] [--json]", "wait for the end of a trial, and print its value"},
};

int report_end(SweepStore& store, const SweepResult& result, const std::string& again) {
  Console& console = Console::instance();
  const auto trials = store.trials();
  const auto searcher = make_searcher(store.options(), store.space(), store.plan().max_resource);
  console.print(progress_text(store, trials, searcher->total(), store.elapsed()));
  switch (result.end) {
    case SweepEnd::stopped:
      console.error("the sweep was stopped; its trials are at checkpoints. To continue: " + again);
      return 128 + result.signal_number;
    case SweepEnd::too_many_failures:
      console.error("the sweep ends after " + count_of(store.options().max_failures, "failed trial") +
                    " in a row (max_failures). The last one: " + result.problem + "\nTo continue: " + again);
      return kExitRunFailed;
    case SweepEnd::unlogged_metric:
      console.error("the sweep ends, because no trial can be ranked: " + result.problem +
                    " The trials are kept. Then continue with: " + again);
      return kExitRunFailed;
    case SweepEnd::out_of_time:
      console.print("The sweep ends because its time is over (max_time). To continue with a longer one: " + again);
      break;
    case SweepEnd::finished: break;
  }
  if (best_trial(trials, store.higher_is_better()) == nullptr) {
    console.error("no trial has a value. levin sweep status " + store.folder() + " shows why.");
    return kExitRunFailed;
  }
  console.print(best_text(store, trials));
  return kExitOk;
}

int submit_to_slurm(SweepStore& store, const SweepWords& words) {
  Console& console = Console::instance();
  const SearchMethod method = store.options().search.method;
  if (store.options().search.has_rungs() || method == SearchMethod::ask) {
    console.error(
        "sweep: --slurm knows all trials beforehand, so it takes grid, random and sobol, and this sweep's method "
        "is " +
        ValueType<SearchMethod>::write(method).text +
        ". Run levin sweep inside one job with slots, or choose another method.");
    return kExitBadConfig;
  }
  const int64_t total = make_searcher(store.options(), store.space(), 0)->total();
  while (store.add([&](int64_t id) {
    return id < total ? std::optional(SweepStore::NewTrial{parameters_of(store.options(), store.space(), id)})
                      : std::nullopt;
  })) {
  }
  SubmitJob job;
  job.name = store.plan().name;
  job.folder = store.plan().working_folder;
  job.output = (fs::path(store.folder()) / "slurm-%a.out").string();
  job.gpus_per_node = store.options().gpus_per_slot;
  job.slurm = words.slurm_options;
  if (store.options().cores_per_slot > 0) {
    job.slurm.emplace_back("cpus-per-task", std::to_string(store.options().cores_per_slot));
  }
  job.command = {this_program(), "sweep", "trial", store.folder()};
  for (const Trial& trial : store.trials()) {
    if (trial.state == TrialState::waiting) job.points.push_back({std::to_string(trial.id)});
  }
  if (job.points.empty()) {
    console.print("No trial is left to run. levin sweep best " + store.folder() + " names the best.");
    return kExitOk;
  }
  const std::string script = (fs::path(store.folder()) / "sweep.sbatch").string();
  write_file_durably(script, job_script(job));
  const CommandResult result = run_command({"sbatch", script});
  const std::string said = result.output.substr(0, result.output.find_last_not_of('\n') + 1);
  if (result.status != 0) {
    console.error("sweep: sbatch refuses " + script + ": " + said);
    return kExitRunFailed;
  }
  console.print(said + " (" + script + ")");
  return kExitOk;
}

int sweep_file(const SweepWords& words, const std::string& again) {
  Problems problems;
  const auto store = open_sweep(words, problems);
  if (!problems.empty()) {
    return report_problems(problems, count_of(static_cast<int64_t>(problems.size()), "problem") +
                                         "; nothing was run. See levin sweep --help.");
  }
  if (words.prepare) {
    Console::instance().print("The sweep is prepared in " + store->folder() + ".");
    return kExitOk;
  }
  if (words.slurm) return submit_to_slurm(*store, words);
  Console::instance().print("The sweep is in " + store->folder() + ".");
  const SweepResult result = run_sweep(*store, this_program());
  return report_end(*store, result, again);
}

}  // namespace

std::string sweep_usage(int width) {
  std::string out = "levin sweep …\n\n";
  for (const auto& [words, doc] : kSweepHelp) out += std::string("  ") + words + "\n" + wrapped(doc, width, 6);
  out += "\n" + wrapped("Keys of the file:", width);
  for (const auto& option : describe_options<SweepOptions>()) {
    if (option.name != "search") out += "  " + option.name + "\n" + wrapped(option.doc, width, 6);
  }
  for (const auto& option : describe_options<SearchOptions>()) {
    out += "  search." + option.name + "\n" + wrapped(option.doc, width, 6);
  }
  return out;
}

int run_sweep_tool(const std::vector<std::string>& words, int width) {
  Problems problems;
  bool help = false;
  const SweepWords read = read_sweep_words(words, help, problems);
  if (help) {
    Console::instance().print(sweep_usage(width));
    return kExitOk;
  }
  const std::string conclusion = "nothing was done. See levin sweep --help.";
  if (read.names.empty())
    problems.add({}, "levin sweep", "expected a sweep file, or status, best, report, ask, tell, wait.");
  if (!problems.empty()) return report_problems(problems, conclusion);
  if (const auto* command = find_sweep_folder_command(read.names[0])) {
    for (const Override& change : read.changes) problems.add({}, change.str(), "this command takes no overrides.");
    for (const auto& word : read.run_words) problems.add({}, cut_text(word), "unknown option.");
    if (!problems.empty()) return report_problems(problems, conclusion);
    if (read.names.size() != command->names) {
      problems.add(
          {}, std::string("levin sweep ") + command->word,
          command->names == 3 ? "expected a sweep's folder and a trial's number." : "expected a sweep's folder.");
      return report_problems(problems, conclusion);
    }
    SweepStore store(fs::absolute(read.names[1]).lexically_normal().string());
    return command->run(store, read);
  }
  if (read.names.size() > 1) {
    problems.add({}, "\"" + cut_text(read.names[1]) + "\"", "unexpected argument.");
    return report_problems(problems, conclusion);
  }
  std::string again = "levin sweep";
  for (const auto& each : words) again += " " + shell_word(each);
  return sweep_file(read, again);
}

}  // namespace levin
