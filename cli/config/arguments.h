// The command line:  levin fit --config run.yaml --trainer.max_epochs=5 --model=Classifier --model.hidden=256
//
//   Problems problems;
//   const Arguments arguments = parse_arguments({argv + 1, argv + argc}, trainer_options, problems);
//
// Files and overrides keep their order; assemble_config() merges them from left to right.
#pragma once

#include <string>
#include <vector>

#include "levin/cli/config/merge.h"
#include "levin/core/value.h"

namespace levin {

enum class Command {
  fit,
  validate,
  test,
  predict,
  checkpoint,
  submit,
  plan,
  tune,
  sweep,
  top,
  convert,
  export_model,
  runs,
  report,
  list,
  help,
  version
};

struct Arguments {
  Command command = Command::help;
  std::vector<ConfigSource> sources = {};  // of fit, validate, test and predict; the plugins of list and help
  bool print_config = false;               // print the resolved configuration and do nothing
  std::string log_level = "";              // of the run's log: "debug", "data=debug,info"; "": not given
  std::string log_format = "";             // "text" or "json"; "": not given
  std::string output = "";                 // of predict: a file for the predictions; "": none
  bool help = false;                       // --help after a subcommand
  std::vector<std::string> words =
      {};  // what follows "levin checkpoint", "submit", "plan", "tune", "sweep", "convert", "export", …
  std::string topic = "";  // "levin list TOPIC": a kind of class; "levin help TOPIC": a class; or ""
};

/// Parses the arguments after the program's name. `trainer_options` are the names below "trainer.": they make
/// "--max_epochs" suggest "--trainer.max_epochs". Everything wrong becomes a problem; exit with kExitBadConfig then.
[[nodiscard]] Arguments parse_arguments(const std::vector<std::string>& args,
                                        const std::vector<std::string>& trainer_options, Problems& problems);

/// The word on the command line: "fit".
[[nodiscard]] std::string command_word(Command command);

}  // namespace levin
