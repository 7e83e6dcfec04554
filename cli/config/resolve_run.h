// Resolves run files and overrides: finds every class, fills in and checks every option.
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
  ConfigNode printed;                     // the content of --print_config and config.yaml
  std::vector<std::string> notices = {};  // about old spellings, a line each
  bool is_whole = true;                   // false: a file could not be read, so its contents are unknown
};

/// Where the run will be: for `elsewhere`, options that depend on the machine (devices, ranks) are not checked; nor for
/// `before`, an earlier run that this one continues, whose libraries this one has opened under its own names.
enum class RunPlace { here, elsewhere, before };

/// Every mistake becomes a problem with its position in the file. Nothing is created.
[[nodiscard]] ResolvedRun resolve_run(const std::vector<ConfigSource>& sources, RunPlace place, Problems& problems);

/// A run needs a model: its absence is a problem, unless a file could not be read.
void require_model(const ResolvedRun& run, Problems& problems);

/// The files and overrides that "levin fit" would read from these words.
[[nodiscard]] std::vector<ConfigSource> read_fit_words(const std::vector<std::string>& words, Problems& problems);

struct FitWords {
  std::vector<ConfigSource> sources = {};  // the files and overrides, as written
  ResolvedRun run = {};
};

/// The run that "levin fit" followed by these words would be, model required: for commands that do something else with
/// such words (tune, plan). Check `problems` before using it.
[[nodiscard]] FitWords resolve_fit_words(const std::vector<std::string>& words, RunPlace place, Problems& problems);

}  // namespace levin
