#include "levin/cli/commands/submit_job.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <regex>

#include "levin/cli/config/arguments.h"
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

std::vector<OwnOption> own_submit_options() {
  using Kind = OwnOption::Kind;
  return {{"nodes"},
          {"ntasks-per-node"},
          {"time"},
          {"job-name"},
          {"output"},
          {"signal-before"},
          {"slurm", Kind::values},
          {"grid", Kind::values},
          {"no-requeue", Kind::flag},
          {"dry-run", Kind::flag}};
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

}  // namespace levin
