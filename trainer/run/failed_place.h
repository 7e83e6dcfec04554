// The position in a run at which an error occurred, for errors of LibTorch and user code, which do not contain it.
#pragma once

#include <string>

#include "levin/trainer/run/run.h"

namespace levin {

/// Returns "training_step, epoch 0, batch 3, global step 3"; between two hooks "fit, epoch 0, …".
[[nodiscard]] std::string failed_place(const Run& run);

/// Returns the hook that is running: "on_train_batch_end of StopEarly".
[[nodiscard]] std::string calling_hook(const EntryPoint& entry);

// LibTorch's errors about types name two types but no remedy.

/// Returns what to do about LibTorch's error `text`: a separator and a sentence; "" if the error is not about types.
/// `about_floats`: the sentence about inputs and weights of different types; "": the Trainer's.
[[nodiscard]] std::string type_remedy(const std::string& text, const std::string& about_floats = "");

}  // namespace levin
