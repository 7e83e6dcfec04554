// The result of a fit for the program that started it ("levin sweep"), in the file that LEVIN_RESULT_FILE names:
//
//   {"status": "success", "logging_step": 120, "metrics": {"val_loss": 0.31}, "steps": {"val_loss": 119},
//    "checkpoints": {"…/last.ckpt": 120},
//    "best": [{"monitor": "val_loss", "mode": "min", "value": 0.29, "checkpoint": "…/epoch=2-step=90.ckpt"}]}
//
// `metrics` are the last values and `steps` the logging steps at which they were measured; `checkpoints` the logging
// steps at which they were saved; `best` what checkpoint callbacks monitor.
#pragma once

#include <string>

#include "levin/trainer/trainer.h"

namespace levin {

/// Writes the file, if the variable is set and this is the first rank. `stopped`: a stop ended the fit; its status is
/// "paused" where LEVIN_STOP_AFTER asked for it, else "interrupted".
void write_result_file(Trainer& trainer, bool stopped);

}  // namespace levin
