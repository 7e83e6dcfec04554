// Where in a run an error occurred, for errors of LibTorch and user code that do not say.
#pragma once

#include <string>

#include "levin/trainer/run/run.h"

namespace levin {

/// "training_step, epoch 0, batch 3, global step 3"; between two hooks "fit, epoch 0, …".
[[nodiscard]] std::string failed_place(const Run& run);

/// "on_train_batch_end of StopEarly": the hook that is running.
[[nodiscard]] std::string calling_hook(const EntryPoint& entry);

// LibTorch's errors about types name two types and no way out.

/// Returns what to do about LibTorch's error `text`, a sentence, with what separates it from the text; "" if the error
/// is about something else.
[[nodiscard]] std::string type_remedy(const std::string& text);

}  // namespace levin
