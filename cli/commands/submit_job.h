// The job of `levin submit`: its options on the command line, and its script.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "levin/cli/config/arguments.h"
#include "levin/core/options/value.h"

namespace levin {

// --- The script of a Slurm job, as text.

/// A Slurm job: what its script asks sbatch for, and the command that it runs.
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

/// Control characters, such as newlines, become a problem in lines of an sbatch script. The arguments of the command
/// may have them, because they are quoted for the shell.
void check_job(const SubmitJob& job, Problems& problems);

/// Throws ConfigError if check_job finds a problem.
[[nodiscard]] std::string job_script(const SubmitJob& job);

// --- The arguments after "levin submit": the options of the job, and the arguments of the run.

/// "--grid model.lr=0.1,0.01": the values that one option takes.
struct GridAxis {
  std::string path = "";
  std::vector<std::string> values = {};  // as typed
};

/// Options of "levin submit", and the arguments that describe the run.
struct SubmitOptions {
  std::optional<int64_t> nodes = std::nullopt;           // unset: trainer.num_nodes
  std::optional<int64_t> tasks_per_node = std::nullopt;  // unset: trainer.devices
  std::string time = "";                                 // the job's limit as Slurm writes it; "": the partition's
  std::string job_name = "";                             // "": the run file's
  std::string output = "";                               // "": Slurm's
  int64_t signal_seconds = 90;                           // SIGUSR1 this long before the job's end
  bool requeue = true;
  bool dry_run = false;
  bool help = false;
  std::vector<std::pair<std::string, std::string>> slurm = {};  // further options of sbatch
  std::vector<GridAxis> grid = {};
  std::vector<std::string> run = {};  // the rest: subcommand, files and overrides of the run
};

/// Every mistake becomes a problem. All other arguments describe the run.
[[nodiscard]] SubmitOptions read_submit_options(const std::vector<std::string>& arguments, Problems& problems);

/// Every combination of the axes' values, the last axis fastest; each as overrides: {"--model.lr=0.1", …}. Without
/// axes: none.
[[nodiscard]] std::vector<std::vector<std::string>> grid_points(const std::vector<GridAxis>& grid);

/// Writes the job's script to `path` and gives it to sbatch; prints its answer, or its refusal in the name of
/// `command`, and returns the exit code. Throws Error if sbatch cannot be started.
[[nodiscard]] int submit_script(const std::string& path, const SubmitJob& job, const std::string& command);

/// The options that this command reads itself.
[[nodiscard]] std::vector<OwnOption> own_submit_options();

}  // namespace levin
