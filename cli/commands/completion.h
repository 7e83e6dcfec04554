// "levin completion": scripts for bash, zsh and fish, which ask the tool itself for completions.
#pragma once

#include <string>
#include <vector>

#include "levin/cli/commands/help_text.h"
#include "levin/cli/config/arguments.h"

namespace levin {

/// A word that completes the typed one, and its meaning, "" without one.
struct Completion {
  std::string word = "";
  std::string meaning = "";
};

/// The completions of one word.
struct Completions {
  std::vector<Completion> words = {};
  bool files = false;  // also the name of a file or folder
};

/// What a completion knows about the program.
struct CompletedProgram {
  std::vector<ClassKind> kinds = {};
  std::vector<FieldInfo> trainer = {};
  OwnArguments (*own_arguments)(Command command) = nullptr;  // of a command that reads its arguments itself
};

/// Returns the completions of the last of `words`, which are the words after the program's name. Reads the run files
/// that the words name, for their classes, and does not open the libraries that these files name.
[[nodiscard]] Completions complete(const std::vector<std::string>& words, const CompletedProgram& program);

/// Runs the arguments after "levin completion"; returns the exit code. `program` is the name of the program.
int run_completion(const std::vector<std::string>& arguments, int width, const std::string& program,
                   const CompletedProgram& known);

}  // namespace levin
