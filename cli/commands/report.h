// The report at the end of a run: where its files are, its results, and how long it took.
#pragma once

#include <string>
#include <vector>

#include "levin/cli/config/run_config.h"
#include "levin/core/error.h"
#include "levin/trainer/trainer.h"

namespace levin {

/// Prints the problems, one per line, and the conclusion; returns the exit status of a wrong configuration.
int report_problems(const Problems& problems, const std::string& conclusion);

/// For a command that trains nothing: warns if the run file names neither a checkpoint nor weights.
void warn_of_initial_weights(const std::string& command, const RunConfig& config);

/// After fit: logs, checkpoints, the best score, why it stopped, how long it took.
void report_fit(Trainer& trainer);

/// One table of metrics; a column per loader.
void report_metrics(const std::string& what, const std::vector<Metrics>& results);

/// The number of predictions, and the first of them: as texts if `data` (null: none) decodes them, else as numbers.
void report_predictions(const Trainer& trainer, const Predictions& predictions, const DataModule* data);

/// "best" if a checkpoint callback has one, else "" (the current weights).
[[nodiscard]] std::string best_or_current(Trainer& trainer);

}  // namespace levin
