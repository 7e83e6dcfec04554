// What a run's folder says about how the run was made: config.yaml (of a program that has a configuration) and the
// loggers' hyper-parameters. A run that is continued is compared with them, and they change only once it goes on.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "levin/core/config_node.h"

namespace levin {

struct Run;
struct StartingPoint;

struct ChangedOption {
  std::string path = "";
  std::string before = "";  // as shown: "0.1", "not set"
  std::string now = "";
};

/// The options that differ, in the order of `now`. `root` is put before their paths.
[[nodiscard]] std::vector<ChangedOption> changed_options(const ConfigNode& before, const ConfigNode& now,
                                                         const std::string& root = "");

/// Whether a run may go on with another value without being asked: what says how long, where and how visibly it runs.
[[nodiscard]] bool may_change(const std::string& path);

/// Of a fit that continues by itself: shows what has changed. Throws ConfigError naming it, a line each, if the run may
/// not go on so and auto_resume is not "warn". Every rank calls it, before anything is restored or written.
/// `own`: the run has found the checkpoint by itself.
void check_changed_options(Run& run, const StartingPoint& start, bool own);

/// Keeps the configuration at the start of an entry point, and the hyper-parameters once a fit knows them, unless an
/// earlier run's records are there.
void begin_records(Run& run);
void record_hyper_parameters(Run& run);
/// Writes both in the place of the earlier run's, now that training continues.
void renew_records(Run& run);

}  // namespace levin
