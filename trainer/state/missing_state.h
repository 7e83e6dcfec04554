// What a checkpoint lacks for the run that resumes from it, and errors that name the file.
#pragma once

#include <c10/util/Exception.h>

#include <string>

#include "levin/core/state.h"
#include "levin/trainer/run/run.h"

namespace levin {

[[nodiscard]] bool has_random_state(const State& checkpoint);

/// Warns of what will not continue exactly: random numbers and callback states that the file does not contain.
void warn_of_missing_state(const Run& run, const State& checkpoint, const std::string& path);

/// Runs `action`; a CheckpointError or an error of LibTorch's from it names the file: the reader of a part, for example
/// an optimizer, does not know where it came from.
template <class Action>
void naming_checkpoint(const std::string& path, const Action& action) {
  try {
    action();
  } catch (const CheckpointError& error) {
    if (std::string(error.what()).find(path) != std::string::npos) throw;
    throw CheckpointError(path + ": " + error.what());
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& error) {
    throw CheckpointError(path + ": " + error.what_without_backtrace());
  }
}

}  // namespace levin
