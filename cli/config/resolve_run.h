// Resolves run files and overrides: finds every class, fills in and checks every option.
#pragma once

#include <string>
#include <vector>

#include "levin/cli/config/merge.h"
#include "levin/cli/config/run_config.h"
#include "levin/core/options/value.h"
#include "levin/trainer/trainer_options.h"

namespace levin {

// --- Opens the libraries that a run file names under `plugins`, for the classes and devices that they register.
//
//   plugins: [build/libmymodels.so]

/// Loads each library, once per process and until its end; `paths` are files, relative to the current folder. One that
/// cannot be loaded becomes a problem. Runs the library's code.
void open_plugins(const std::vector<std::string>& paths, Problems& problems);

/// The same paths as they lead to the libraries from any folder.
[[nodiscard]] std::vector<std::string> absolute_plugins(const std::vector<std::string>& paths);

/// Opens the libraries that run files and --plugins name, and reads nothing else of the files: for "levin list" and
/// "levin help".
void open_plugins_of(const std::vector<ConfigSource>& sources, Problems& problems);

/// A run file and its overrides after all checks: every class is known and every option has a value.
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

/// The files and overrides that "levin fit" would read from these arguments.
[[nodiscard]] std::vector<ConfigSource> read_fit_arguments(const std::vector<std::string>& arguments,
                                                           Problems& problems);

/// What "levin fit" would run with some arguments.
struct FitArguments {
  std::vector<ConfigSource> sources = {};  // the files and overrides, as written
  ResolvedRun run = {};
};

/// The run that "levin fit" with these arguments would be, model required: for commands that do something else with it
/// (tune, plan). Check `problems` before using it.
[[nodiscard]] FitArguments resolve_fit_arguments(const std::vector<std::string>& arguments, RunPlace place,
                                                 Problems& problems);

}  // namespace levin
