// levin submit: hands a run to Slurm.
//
//   levin submit --config run.yaml --nodes 2 --time 04:00:00 --grid model.lr=0.1,0.01 --trainer.max_epochs=20
#pragma once

#include <string>
#include <vector>

namespace levin {

/// Checks the run that the arguments describe, writes the job's script and gives it to sbatch (--dry-run: prints it).
/// Prints to the Console and returns the exit code: 0; 1 if sbatch is missing or fails; 2 for a mistake in
/// arguments or run.
[[nodiscard]] int run_submit(const std::vector<std::string>& arguments, int width);

}  // namespace levin
