// "levin completion": scripts for bash, zsh and fish, which ask the tool itself what fits after some words.
#pragma once

#include <string>
#include <vector>

#include "levin/cli/commands/help_text.h"
#include "levin/cli/config/arguments.h"

namespace levin {

/// A word that fits, and its meaning, "" without one.
struct Completion {
  std::string word = "";
  std::string meaning = "";
};

/// What fits in place of the last word.
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

/// What fits in place of the last of `words`, which follow the program's name. The run files that the words name are
/// read, for their classes; the libraries that these name are not opened.
[[nodiscard]] Completions complete(const std::vector<std::string>& words, const CompletedProgram& program);

/// Runs the arguments after "levin completion"; returns the exit code. `program` is the name of the program.
int run_completion(const std::vector<std::string>& arguments, int width, const std::string& program,
                   const CompletedProgram& known);

}  // namespace levin
