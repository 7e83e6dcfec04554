// What commands print: usage, and what is wrong with their arguments.
#pragma once

#include <string>

#include "levin/cli/config/run_config.h"
#include "levin/core/options/value.h"

namespace levin {

/// Prints what `levin COMMAND --help` shows, and returns kExitOk.
int print_usage(const std::string& usage);

/// Prints the problems, one per line, and the conclusion; returns the exit status of a wrong configuration.
int report_problems(const Problems& problems, const std::string& conclusion);

/// For a command that trains nothing: warns if the run file names neither a checkpoint nor weights.
void warn_of_initial_weights(const std::string& command, const RunConfig& config);

}  // namespace levin
