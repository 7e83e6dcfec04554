// The report at the end of a run: where its files are, its results, and how long it took.
#pragma once

#include <string>
#include <vector>

#include "levin/trainer/trainer.h"

namespace levin {

/// After fit: logs, checkpoints, the best score, why it stopped, how long it took.
void report_fit(Trainer& trainer);

/// One table of metrics; a column per loader.
void report_metrics(const std::string& what, const std::vector<Metrics>& results);

/// The number of predictions, and the first of them: as text if `data` (may be null) decodes them, else as numbers.
void report_predictions(const Trainer& trainer, const Predictions& predictions, const DataModule* data);

/// "best" if a checkpoint callback has one, else "" (the current weights).
[[nodiscard]] std::string best_or_current(Trainer& trainer);

// --- The result of a fit for the program that started it ("levin sweep"), in the file that LEVIN_RESULT_FILE names:
//
//   {"status": "success", "logging_step": 120, "metrics": {"val_loss": 0.31}, "steps": {"val_loss": 119},
//    "checkpoints": {"…/last.ckpt": 120},
//    "best": [{"monitor": "val_loss", "mode": "min", "value": 0.29, "checkpoint": "…/epoch=2-step=90.ckpt"}]}
//
// `metrics` are the last values and `steps` the logging steps at which they were measured; `checkpoints` the logging
// steps at which they were saved; `best` what checkpoint callbacks monitor.

/// Writes the file, if the variable is set and this is the first rank. `stopped`: a stop ended the fit; its status is
/// "paused" where LEVIN_STOP_AFTER asked for it, else "interrupted".
void write_result_file(Trainer& trainer, bool stopped);

}  // namespace levin
