// The records of a run's configuration in its folder: config.yaml (if the program has a configuration) and the loggers'
// hyper-parameters. A resumed run is compared with them, and replaces them only once training continues.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "levin/core/options/config_node.h"

namespace levin {

struct Run;
struct StartingPoint;

/// An option with different values in two configurations.
struct ChangedOption {
  std::string path = "";
  std::string before = "";  // as shown: "0.1", "not set"
  std::string now = "";
};

/// Returns the options that differ, in the order of `now`. `root` is put before their paths.
[[nodiscard]] std::vector<ChangedOption> changed_options(const ConfigNode& before, const ConfigNode& now,
                                                         const std::string& root = "");

/// Returns whether a run may resume with a different value of the option: true for options that determine how long it
/// runs, where, and what it shows.
[[nodiscard]] bool may_change(const std::string& path);

/// Reports the changed options of a fit that resumes automatically. Throws ConfigError naming them, one per line, if
/// the run may not resume with them and auto_resume is not "warn". Every rank calls it, before anything is restored or
/// written. `own`: the run has found the checkpoint by itself.
void check_changed_options(Run& run, const StartingPoint& start, bool own);

/// Writes the configuration at the start of an entry point, unless an earlier run's records exist.
void begin_records(Run& run);
/// Writes the hyper-parameters once a fit knows them, unless an earlier run's records exist.
void record_hyper_parameters(Run& run);
/// Replaces the earlier run's records, now that training continues.
void renew_records(Run& run);

}  // namespace levin
