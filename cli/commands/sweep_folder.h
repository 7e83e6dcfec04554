// The commands of levin sweep on the folder of one: status, best, report, ask, tell, wait, and trial, which the tasks
// of a Slurm array run.
#pragma once

#include <string>

#include "levin/cli/commands/sweep_words.h"
#include "levin/cli/sweep/sweep_store.h"

namespace levin {

struct SweepFolderCommand {
  const char* word;
  size_t names;  // with the word itself
  /// Prints to the Console and returns the exit code.
  int (*run)(SweepStore&, const SweepWords&);
};

/// Null if the word names none of them.
[[nodiscard]] const SweepFolderCommand* find_sweep_folder_command(const std::string& word);

/// The levin tool that runs now.
[[nodiscard]] std::string this_program();

}  // namespace levin
