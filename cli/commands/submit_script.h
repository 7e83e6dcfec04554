// The script of a Slurm job, as text.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "levin/core/value.h"

namespace levin {

struct SubmitJob {
  std::string name = "";
  std::string folder = "";  // where the command runs
  std::string time = "";    // "": the partition's limit
  std::string output = "";  // "": Slurm's
  int64_t nodes = 1;
  int64_t tasks_per_node = 1;
  int64_t gpus_per_node = 0;
  bool requeue = true;
  int64_t signal_seconds = 90;                                  // with requeue
  std::vector<std::pair<std::string, std::string>> slurm = {};  // further options of sbatch
  std::vector<std::string> command = {};                        // program and arguments
  std::vector<std::vector<std::string>> points = {};            // more arguments, for each task of an array
};

/// Whether `text` has no control character, such as a newline.
[[nodiscard]] bool is_one_line(const std::string& text);

/// Control characters, such as newlines, become a problem in lines of an sbatch script. The words of the command may
/// have them, because they are quoted for the shell.
void check_job(const SubmitJob& job, Problems& problems);

/// Throws ConfigError if check_job finds a problem.
[[nodiscard]] std::string job_script(const SubmitJob& job);

/// `text` as one word of a POSIX shell.
[[nodiscard]] std::string shell_word(const std::string& text);

}  // namespace levin
