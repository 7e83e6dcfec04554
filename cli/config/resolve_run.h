// Run files and overrides become what a run needs: every class found, every option filled in and checked.
#pragma once

#include <string>
#include <vector>

#include "levin/cli/config/merge.h"
#include "levin/cli/config/run_config.h"
#include "levin/trainer/trainer_options.h"

namespace levin {

struct ResolvedRun {
  RunConfig config;
  TrainerOptions trainer;
  ConfigNode printed;                     // what --print_config shows and config.yaml keeps
  std::vector<std::string> notices = {};  // about old spellings, a line each
  bool is_whole = true;                   // false: a file could not be read, so that what it says is not known
};

/// Where the run will be: `elsewhere`, what only that machine can say (its devices, its ranks) is not judged.
enum class RunPlace { here, elsewhere };

/// Everything wrong becomes a problem, at the place in the file that said it. Nothing is created.
[[nodiscard]] ResolvedRun resolve_run(const std::vector<ConfigSource>& sources, RunPlace place, Problems& problems);

/// A run needs a model: its absence is a problem, but for one that a file which cannot be read may name.
void require_model(const ResolvedRun& run, Problems& problems);

struct FitWords {
  std::vector<ConfigSource> sources = {};  // the files and overrides, as written
  ResolvedRun run = {};
};

/// The run that "levin fit" followed by these words would be, model required: for commands that take such words and do
/// something else with them (tune, plan). Look at `problems` before using it.
[[nodiscard]] FitWords resolve_fit_words(const std::vector<std::string>& words, RunPlace place, Problems& problems);

}  // namespace levin
