// What a run tells a person when it is over: where things are, how good, how long.
#pragma once

#include <string>
#include <vector>

#include "levin/core/error.h"
#include "levin/trainer/trainer.h"

namespace levin {

/// One line each, and what follows from them; returns the exit status of a wrong configuration.
int report_problems(const Problems& problems, const std::string& conclusion);

/// After fit: logs, checkpoints, the best score, why it stopped, how long it took.
void report_fit(Trainer& trainer);

/// One table of metrics; a column per loader.
void report_metrics(const std::string& what, const std::vector<Metrics>& results);

/// How many predictions, and the first of them: as texts if `data` (null: none) reads them so, else as numbers.
void report_predictions(const Trainer& trainer, const Predictions& predictions, const DataModule* data);

/// "best" if a checkpoint callback has one, else "" (the weights as they are).
[[nodiscard]] std::string best_or_current(Trainer& trainer);

}  // namespace levin
