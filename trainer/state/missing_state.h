// What a checkpoint lacks of the run that continues from it, and errors of its parts that name the file.
#pragma once

#include <c10/util/Exception.h>

#include <string>

#include "levin/core/state.h"
#include "levin/trainer/run/run.h"

namespace levin {

[[nodiscard]] bool has_random_state(const State& checkpoint);

/// Says what will not be continued exactly: random numbers and states of callbacks that the file does not hold.
void warn_of_missing_state(const Run& run, const State& checkpoint, const std::string& path);

/// Runs `action`; a CheckpointError or an error of LibTorch's from it names the file: who reads a part of a checkpoint,
/// an optimizer say, does not know where it came from.
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
