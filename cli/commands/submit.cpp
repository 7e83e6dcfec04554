#include "levin/cli/commands/submit.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <regex>

#include "levin/cli/commands/help_text.h"
#include "levin/cli/commands/report.h"
#include "levin/cli/config/arguments.h"
#include "levin/cli/config/resolve_run.h"
#include "levin/cli/config/text_layout.h"
#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/main_guard.h"
#include "levin/core/process/run_command.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

// Quotes for sbatch's lines, in which a backslash escapes the next letter.
std::string sbatch_value(const std::string& text) {
  if (is_plain_argument(text)) return text;
  std::string quoted = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') quoted += '\\';
    quoted += letter;
  }
  return quoted + "\"";
}

void add_option(std::string& script, const std::string& name, const std::string& value) {
  script += "#SBATCH --" + name + (value.empty() ? "" : "=" + sbatch_value(value)) + "\n";
}

void add_options(std::string& script, const SubmitJob& job) {
  add_option(script, "job-name", job.name);
  add_option(script, "nodes", std::to_string(job.nodes));
  add_option(script, "ntasks-per-node", std::to_string(job.tasks_per_node));
  if (job.gpus_per_node > 0) add_option(script, "gpus-per-node", std::to_string(job.gpus_per_node));
  if (!job.time.empty()) add_option(script, "time", job.time);
  add_option(script, "chdir", job.folder);
  if (!job.output.empty()) add_option(script, "output", job.output);
  if (!job.points.empty()) add_option(script, "array", "0-" + std::to_string(job.points.size() - 1));
  if (job.requeue) {
    // To the ranks ("B:" would send it to this script alone): they save, and requeue the job.
    add_option(script, "signal", "SIGUSR1@" + std::to_string(job.signal_seconds));
    add_option(script, "requeue", "");
    add_option(script, "open-mode", "append");
  } else {
    add_option(script, "no-requeue", "");
  }
  for (const auto& [name, value] : job.slurm) add_option(script, name, value);
}

constexpr int64_t kMaxTasks = 1000;  // Slurm's default limit of an array (MaxArraySize=1001)

const std::vector<OwnOption>& own_submit_options() {
  using Kind = OwnOption::Kind;
  static const std::vector<OwnOption> options{{"nodes"},
                                              {"ntasks-per-node"},
                                              {"time"},
                                              {"job-name"},
                                              {"output"},
                                              {"signal-before"},
                                              {"slurm", Kind::values},
                                              {"grid", Kind::values},
                                              {"no-requeue", Kind::flag},
                                              {"dry-run", Kind::flag}};
  return options;
}

// Options of sbatch that submit writes itself.
constexpr std::array kOwn{"nodes",   "ntasks-per-node", "time",   "job-name", "output", "array",    "signal",
                          "requeue", "no-requeue",      "ntasks", "chdir",    "wrap",   "open-mode"};

// "4", "1:30" or "04:00:00" (minutes; minutes and seconds; hours), "1-12", "1-12:30:00" (days), "UNLIMITED".
bool is_slurm_time(const std::string& text) {
  static const std::regex form(R"((\d+(:\d{1,2}(:\d{1,2})?)?)|(\d+-\d{1,2}(:\d{1,2}(:\d{1,2})?)?)|UNLIMITED|INFINITE)");
  const bool is_zero = text.find_first_not_of("0:-") == std::string::npos;
  return std::regex_match(text, form) && !is_zero;
}

// Splits the values of a grid at commas outside of brackets and quotes.
std::vector<std::string> parted(const std::string& text) {
  std::vector<std::string> values(1);
  int depth = 0;
  char quote = '\0';
  for (const char letter : text) {
    if (quote != '\0') {
      if (letter == quote) quote = '\0';
    } else if (letter == '\'' || letter == '"') {
      quote = letter;
    } else if (letter == '[' || letter == '{') {
      ++depth;
    } else if (letter == ']' || letter == '}') {
      --depth;
    }
    if (letter == ',' && depth == 0 && quote == '\0') {
      values.emplace_back();
    } else {
      values.back() += letter;
    }
  }
  return values;
}

class Reader {
 public:
  Reader(const std::vector<std::string>& arguments, Problems& problems)
      : problems_(problems), read_(split_arguments(arguments, own_submit_options(), problems)) {}

  SubmitOptions read() {
    options_.help = read_.help;
    options_.run = read_.rest;
    for (const auto& entry : read_.options.entries) {
      if (!entry.value.is_list()) set(entry.key, entry.value.text);
      for (const auto& item : entry.value.items) set(entry.key, item.text);
    }
    check_size();
    return std::move(options_);
  }

 private:
  void set(const std::string& name, const std::string& value) {
    if (!is_one_line(value)) {
      problems_.add({}, "--" + name, "\"" + cut_text(value) + "\" contains a newline or another control character.");
    } else if (name == "nodes") {
      options_.nodes = count(name, value);
    } else if (name == "ntasks-per-node") {
      options_.tasks_per_node = count(name, value);
    } else if (name == "signal-before") {
      options_.signal_seconds = count(name, value);
    } else if (name == "time") {
      set_time(value);
    } else if (name == "slurm") {
      add_slurm(value);
    } else if (name == "grid") {
      add_axis(value);
    } else if (name == "output" || name == "job-name") {
      (name == "output" ? options_.output : options_.job_name) = value;
    } else if (value != "true") {
      problems_.add({}, "--" + name, "takes no value, got --" + name + "=" + cut_text(value) + ".");
    } else if (name == "dry-run") {
      options_.dry_run = true;
    } else {
      options_.requeue = false;
    }
  }

  int64_t count(const std::string& name, const std::string& text) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool good = error == std::errc() && end == text.data() + text.size() && value >= 1 && value <= 65535;
    if (!good) problems_.add({}, "--" + name, "expected a whole number from 1 to 65535, got " + cut_text(text) + ".");
    return good ? value : 1;
  }

  void set_time(const std::string& text) {
    options_.time = text;
    if (is_slurm_time(text)) return;
    problems_.add({}, "--time",
                  "\"" + cut_text(text) +
                      "\" is not a time that Slurm accepts. Write 04:00:00 (hours:minutes:seconds), 90 "
                      "(minutes) or 1-12 (days-hours).");
  }

  void add_slurm(const std::string& text) {
    const size_t equals = std::min(text.find('='), text.size());
    const std::string name = text.substr(0, equals);
    const bool is_name = !name.empty() &&
                         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string::npos &&
                         name[0] != '-';
    const bool is_own = std::any_of(kOwn.begin(), kOwn.end(), [&](const char* own) { return name == own; });
    if (!is_name) {
      problems_.add({}, "--slurm",
                    "\"" + cut_text(text) + "\" is not an option of sbatch. Write --slurm partition=NAME.");
    } else if (is_own) {
      problems_.add({}, "--slurm", name + " is written by levin submit itself; see levin submit --help.");
    } else {
      options_.slurm.emplace_back(name, equals < text.size() ? text.substr(equals + 1) : "");
    }
  }

  void add_axis(const std::string& text) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      problems_.add({}, "--grid",
                    "\"" + cut_text(text) + "\" has no option with values. Write --grid model.lr=0.1,0.01.");
      return;
    }
    GridAxis axis{text.substr(0, equals), parted(text.substr(equals + 1))};
    const auto same = [&](const GridAxis& other) { return other.path == axis.path; };
    if (std::any_of(options_.grid.begin(), options_.grid.end(), same)) {
      problems_.add({}, "--grid", axis.path + " is given twice. Write all its values in one.");
    }
    if (std::find(axis.values.begin(), axis.values.end(), "") != axis.values.end()) {
      problems_.add({}, "--grid", axis.path + " has an empty value in \"" + cut_text(text) + "\".");
    }
    options_.grid.push_back(std::move(axis));
  }

  void check_size() {
    int64_t points = 1;
    for (const auto& axis : options_.grid) {
      points = std::min<int64_t>(points * static_cast<int64_t>(axis.values.size()), kMaxTasks + 1);
    }
    if (points > kMaxTasks) {
      problems_.add({}, "--grid", "more than " + std::to_string(kMaxTasks) + " combinations. Submit it in parts.");
    }
  }

  Problems& problems_;
  const SplitArguments read_;
  SubmitOptions options_;
};

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

bool is_one_line(const std::string& text) {
  return std::none_of(text.begin(), text.end(), [](unsigned char letter) { return letter < ' ' || letter == 0x7f; });
}

void check_job(const SubmitJob& job, Problems& problems) {
  const auto check = [&](const std::string& option, const std::string& text, const std::string& advice) {
    if (is_one_line(text)) return;
    problems.add({}, option,
                 "\"" + cut_text(text) +
                     "\" holds a line's end or another control character, which no line of a job's " +
                     "script can hold. " + advice);
  };
  check("--job-name", job.name, "Without --job-name=NAME it is the run file's name: give another.");
  check("submit", job.folder, "It is the folder that the job runs in: submit from a folder with a different name.");
  check("--time", job.time, "Write 04:00:00.");
  check("--output", job.output, "Give another file.");
  for (const auto& [name, value] : job.slurm) check("--slurm", name + "=" + value, "Write --slurm NAME=VALUE.");
}

std::string job_script(const SubmitJob& job) {
  Problems problems;
  check_job(job, problems);
  problems.throw_if_any();
  std::string script = "#!/usr/bin/env bash\n";
  add_options(script, job);
  script += "\nset -eu\n";
  for (const auto& [name, value] : job.slurm) {
    // srun does not inherit it from the job.
    if (name == "cpus-per-task") script += "export SRUN_CPUS_PER_TASK=" + shell_argument(value) + "\n";
  }
  std::string point;
  if (!job.points.empty()) {
    script += "case $SLURM_ARRAY_TASK_ID in\n";
    for (size_t k = 0; k < job.points.size(); ++k) {
      script += "  " + std::to_string(k) + ") point=(" + shell_command(job.points[k]) + ") ;;\n";
    }
    script += "esac\n";
    point = " \"${point[@]}\"";
  }
  return script + "exec srun " + shell_command(job.command) + point + "\n";
}

SubmitOptions read_submit_options(const std::vector<std::string>& arguments, Problems& problems) {
  return Reader(arguments, problems).read();
}

std::vector<std::vector<std::string>> grid_points(const std::vector<GridAxis>& grid) {
  std::vector<std::vector<std::string>> points;
  if (!grid.empty()) points.emplace_back();
  for (const auto& axis : grid) {
    std::vector<std::vector<std::string>> longer;
    for (const auto& point : points) {
      for (const auto& value : axis.values) {
        longer.push_back(point);
        longer.back().push_back("--" + axis.path + "=" + value);
      }
    }
    points = std::move(longer);
  }
  return points;
}

int submit_script(const std::string& path, const SubmitJob& job, const std::string& command) {
  write_file_durably(path, job_script(job));
  const CommandResult result = run_command({"sbatch", fs::absolute(path).string()});
  const std::string said = result.output.substr(0, result.output.find_last_not_of('\n') + 1);
  if (result.status == 0) {
    Console::instance().print(said + " (" + path + ")");
    return kExitOk;
  }
  Console::instance().error(command + ": sbatch refuses " + path + ": " + said);
  return kExitRunFailed;
}

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
