// The result of a fit for the program that started it ("levin sweep"), in the file that LEVIN_RESULT_FILE names:
//
//   {"status": "success", "epoch": 3, "step": 120, "metrics": {"val_loss": 0.31}, "checkpoint": "…/last.ckpt"}
#pragma once

#include <string>

#include "levin/trainer/trainer.h"

namespace levin {

/// Writes the file, if the variable is set and this is the first rank. `stopped`: a stop ended the fit; its status is
/// "paused" where LEVIN_STOP_AFTER asked for it, else "interrupted".
void write_result_file(Trainer& trainer, bool stopped);

}  // namespace levin
