#include "levin/cli/commands/submit_script.h"

#include <algorithm>

#include "levin/core/error.h"

namespace levin {

namespace {

bool is_plain(const std::string& text, const std::string& more) {
  const std::string plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,@%+=" + more;
  return !text.empty() && text.find_first_not_of(plain) == std::string::npos;
}

// Quotes for sbatch's lines, in which a backslash escapes the next letter.
std::string sbatch_value(const std::string& text) {
  if (is_plain(text, "")) return text;
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

std::string words(const std::vector<std::string>& all) {
  std::string text;
  for (const auto& word : all) text += (text.empty() ? "" : " ") + shell_word(word);
  return text;
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

}  // namespace

bool is_one_line(const std::string& text) {
  return std::none_of(text.begin(), text.end(), [](unsigned char letter) { return letter < ' ' || letter == 0x7f; });
}

std::string shell_word(const std::string& text) {
  if (is_plain(text, "")) return text;
  std::string quoted = "'";
  for (const char letter : text) quoted += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return quoted + "'";
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
  check("submit", job.folder, "It is the folder that the job runs in: submit from one with another name.");
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
    if (name == "cpus-per-task") script += "export SRUN_CPUS_PER_TASK=" + shell_word(value) + "\n";
  }
  std::string point;
  if (!job.points.empty()) {
    script += "case $SLURM_ARRAY_TASK_ID in\n";
    for (size_t k = 0; k < job.points.size(); ++k) {
      script += "  " + std::to_string(k) + ") point=(" + words(job.points[k]) + ") ;;\n";
    }
    script += "esac\n";
    point = " \"${point[@]}\"";
  }
  return script + "exec srun " + words(job.command) + point + "\n";
}

}  // namespace levin
