// Parses the words after "levin submit": the options of the job, and the words of the run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "levin/core/value.h"

namespace levin {

/// "--grid model.lr=0.1,0.01": the values that one option takes.
struct GridAxis {
  std::string path = "";
  std::vector<std::string> values = {};  // as typed
};

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

/// Everything wrong becomes a problem. Words that are not submit's are the run's.
[[nodiscard]] SubmitOptions read_submit_options(const std::vector<std::string>& words, Problems& problems);

/// Every combination of the axes' values, the last axis fastest; each as overrides: {"--model.lr=0.1", …}. Without
/// axes: none.
[[nodiscard]] std::vector<std::vector<std::string>> grid_points(const std::vector<GridAxis>& grid);

}  // namespace levin
