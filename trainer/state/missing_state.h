// What a checkpoint lacks for the run that resumes from it, and errors that name the file.
#pragma once

#include <c10/util/Exception.h>

#include <string>

#include "levin/core/state.h"
#include "levin/trainer/run/run.h"
#include "levin/trainer/step/out_of_memory.h"

namespace levin {

/// Returns whether the checkpoint contains the states of random number generators: of all ranks, if it was saved by
/// this many.
[[nodiscard]] bool has_random_state(const State& checkpoint, int64_t ranks);

/// Warns of what will not continue exactly: random numbers and callback states that the file does not contain.
void warn_of_missing_state(const Run& run, const State& checkpoint, const std::string& path);

/// Runs `action`, and adds the file's name to a CheckpointError or an error of LibTorch from it: the reader of a part,
/// for example an optimizer, does not know the file.
template <class Action>
void naming_checkpoint(const std::string& path, const Action& action) {
  try {
    action();
  } catch (const CheckpointError& error) {
    if (std::string(error.what()).find(path) != std::string::npos) throw;
    throw CheckpointError(path + ": " + error.what());
  } catch (const c10::Error& error) {
    if (is_out_of_memory(error)) throw;
    throw CheckpointError(path + ": " + error.what_without_backtrace());
  }
}

}  // namespace levin
