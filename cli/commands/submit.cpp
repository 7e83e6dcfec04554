#include "levin/cli/commands/submit.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "levin/cli/commands/help_text.h"
#include "levin/cli/commands/report.h"
#include "levin/cli/commands/submit_job.h"
#include "levin/cli/config/arguments.h"
#include "levin/cli/config/resolve_run.h"
#include "levin/cli/config/text_layout.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/main_guard.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

constexpr std::array kHelp{
    std::pair{"--nodes N", "machines; default: trainer.num_nodes of the run"},
    std::pair{"--ntasks-per-node N", "ranks on each; default: trainer.devices of the run, else 1"},
    std::pair{"--time 04:00:00", "the job's time limit; without it the partition's"},
    std::pair{"--grid PATH=A,B,…", "run once with each value, as tasks of a job array; several make every combination"},
    std::pair{"--job-name NAME", "default: the run file's name"},
    std::pair{"--output FILE", "where the job's output goes; default: Slurm's, slurm-JOB.out"},
    std::pair{"--slurm NAME=VALUE", "any other option of sbatch: --slurm partition=gpu --slurm cpus-per-task=8"},
    std::pair{"--signal-before S", "save and start again this many seconds before the time is over; default 90"},
    std::pair{"--no-requeue", "let the job end when its time is over"},
    std::pair{"--dry-run", "print the script and submit nothing"},
};

// The run described by the arguments that are not submit's; they may begin with a subcommand.
Arguments run_arguments(std::vector<std::string> rest, Problems& problems) {
  if (rest.empty() || rest[0].starts_with("-")) rest.insert(rest.begin(), "fit");
  Arguments arguments = parse_arguments(rest, field_names<TrainerOptions>(), problems);
  const bool runs = arguments.command == Command::fit || arguments.command == Command::validate ||
                    arguments.command == Command::test || arguments.command == Command::predict;
  if (!runs)
    problems.add({}, "submit", "\"" + cut_text(rest[0]) + "\" is not a run. Use fit, validate, test or predict.");
  if (arguments.print_config)
    problems.add({}, "--print_config", "prints here and not in a job: call it without submit.");
  if (!arguments.log_level.empty() || !arguments.log_format.empty())
    problems.add({}, "--log_level", "is not passed on to a job. Set LEVIN_LOG and LEVIN_LOG_FORMAT where you submit.");
  return arguments;
}

std::optional<int64_t> devices_of(const TrainerOptions& options) {
  if (const auto* count = std::get_if<int64_t>(&options.devices)) {
    return *count >= 1 ? std::optional<int64_t>(*count) : std::nullopt;
  }
  if (const auto* list = std::get_if<std::vector<int64_t>>(&options.devices)) return static_cast<int64_t>(list->size());
  return std::nullopt;
}

// The command line and the run file must not contradict each other.
int64_t agreed(const std::string& option, std::optional<int64_t> asked, const std::string& name,
               std::optional<int64_t> written, Problems& problems) {
  if (asked && written && *asked != *written) {
    problems.add({}, option,
                 std::to_string(*asked) + " was asked for, but the run has trainer." + name + ": " +
                     std::to_string(*written) + ". Make both the same, or leave one out.");
  }
  return asked.value_or(written.value_or(1));
}

// Checks each value of the grid within the run, so that a mistake is reported before any job exists.
void check_grid(const SubmitOptions& options, const Arguments& run, Problems& problems) {
  for (const auto& axis : options.grid) {
    for (const auto& value : axis.values) {
      Problems found;
      const Arguments one = parse_arguments({"fit", "--" + axis.path + "=" + value}, {}, found);
      if (found.empty()) {
        std::vector<ConfigSource> sources = run.sources;
        sources.insert(sources.end(), one.sources.begin(), one.sources.end());
        (void)resolve_run(sources, RunPlace::elsewhere, found);
      }
      if (!found.empty()) problems.add(found);
    }
  }
}

std::string default_name(const Arguments& run) {
  for (const auto& source : run.sources) {
    if (const auto* file = std::get_if<ConfigFile>(&source)) return fs::path(file->path).stem().string();
  }
  return "levin";
}

SubmitJob make_job(const SubmitOptions& options, Problems& problems) {
  const Arguments arguments = run_arguments(options.run, problems);
  if (!problems.empty()) return {};
  const ResolvedRun run = resolve_run(arguments.sources, RunPlace::elsewhere, problems);
  require_model(run, problems);
  if (problems.empty()) check_grid(options, arguments, problems);
  SubmitJob job;
  job.name = options.job_name.empty() ? default_name(arguments) : options.job_name;
  if (job.name == "bash" || job.name == "interactive") {
    problems.add({}, "--job-name",
                 "a job called " + job.name + " is treated as an interactive shell. Choose a different name.");
  }
  job.folder = fs::current_path().string();
  job.time = options.time;
  job.output = options.output;
  const int64_t nodes = run.trainer.num_nodes;
  job.nodes = agreed("--nodes", options.nodes, "num_nodes", nodes > 1 ? std::optional(nodes) : std::nullopt, problems);
  job.tasks_per_node =
      agreed("--ntasks-per-node", options.tasks_per_node, "devices", devices_of(run.trainer), problems);
  if (run.trainer.accelerator == "gpu" || run.trainer.accelerator == "cuda") job.gpus_per_node = job.tasks_per_node;
  job.requeue = options.requeue;
  job.signal_seconds = options.signal_seconds;
  job.slurm = options.slurm;
  job.points = grid_points(options.grid);
  job.command = {fs::read_symlink("/proc/self/exe").string()};
  if (options.run.empty() || options.run[0].starts_with("-")) job.command.emplace_back("fit");
  job.command.insert(job.command.end(), options.run.begin(), options.run.end());
  if (job.nodes != nodes) job.command.push_back("--trainer.num_nodes=" + std::to_string(job.nodes));
  if (!job.requeue) job.command.emplace_back("--trainer.auto_requeue=false");
  check_job(job, problems);
  return job;
}

// A name not used by another job's script: NAME.sbatch, NAME-1.sbatch, …
std::string free_script(const std::string& name) {
  std::string safe = name;
  std::replace(safe.begin(), safe.end(), '/', '_');
  std::string path = safe + ".sbatch";
  std::error_code code;
  for (int number = 1; fs::exists(fs::symlink_status(path, code)); ++number)
    path = safe + "-" + std::to_string(number) + ".sbatch";
  return path;
}

int submit(const SubmitJob& job) {
  const std::string path = free_script(job.name);
  try {
    return submit_script(path, job, "submit");
  } catch (const Error& error) {
    Console::instance().error(std::string("submit: ") + error.what() +
                              " Call levin submit where Slurm's commands are, or hand " + path +
                              " to sbatch there; --dry-run prints it.");
  }
  return kExitRunFailed;
}

std::string submit_usage(int width) {
  std::string out = "levin submit [fit|validate|test|predict] --config FILE… [options of the job] [overrides…]\n\n";
  for (const auto& [option, doc] : kHelp) out += described(option, doc, width);
  return out + "\n" +
         wrapped(
             "All other arguments describe the run, as after levin fit. They are checked before anything is submitted. "
             "The "
             "script stays in the working directory as NAME.sbatch.",
             width);
}

}  // namespace

int run_submit(const std::vector<std::string>& arguments, int width) {
  Problems problems;
  const SubmitOptions options = read_submit_options(arguments, problems);
  if (options.help) return print_usage(submit_usage(width));
  if (!problems.empty()) return report_problems(problems, "nothing was submitted. See levin submit --help.");
  const SubmitJob job = make_job(options, problems);
  if (!problems.empty()) return report_problems(problems, "nothing was submitted. See levin submit --help.");
  if (!options.dry_run) return submit(job);
  std::string script = job_script(job);
  script.pop_back();  // the console adds it
  Console::instance().print(script);
  return kExitOk;
}

}  // namespace levin
