// The command line:  levin fit --config run.yaml --trainer.max_epochs=5 --model=Classifier --model.hidden=256
//
//   Problems problems;
//   const Arguments arguments = parse_arguments({argv + 1, argv + argc}, trainer_options, problems);
//
// Files and overrides keep their order; assemble_config() merges them from left to right.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "levin/cli/config/merge.h"
#include "levin/core/options/fields.h"
#include "levin/core/options/value.h"

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
  pack,
  runs,
  report,
  new_project,
  check,
  schema,
  completion,
  list,
  help,
  version
};

/// A parsed command line.
struct Arguments {
  Command command = Command::help;
  std::vector<ConfigSource> sources = {};  // of fit, validate, test and predict; the plugins of list and help
  bool print_config = false;               // print the resolved configuration and do nothing
  std::string log_level = "";              // of the run's log: "debug", "data=debug,info"; "": not given
  std::string log_format = "";             // "text" or "json"; "": not given
  std::string output = "";                 // of predict: a file for the predictions; "": none
  bool help = false;                       // --help after a subcommand
  std::vector<std::string> own = {};       // what follows a command that reads its arguments itself, such as submit
  std::string topic = "";                  // "levin list TOPIC": a kind of class; "levin help TOPIC": a class; or ""
};

/// Parses the arguments after the program's name. `trainer_options` are the names below "trainer.": they make
/// "--max_epochs" suggest "--trainer.max_epochs". Everything wrong becomes a problem; exit with kExitBadConfig then.
[[nodiscard]] Arguments parse_arguments(const std::vector<std::string>& args,
                                        const std::vector<std::string>& trainer_options, Problems& problems);

/// The names of all subcommands.
[[nodiscard]] std::vector<std::string> subcommands();

/// Returns the subcommand with this name, or nothing.
[[nodiscard]] std::optional<Command> find_command(const std::string& name);

/// The subcommand on the command line: "fit"; "--version" for Command::version.
[[nodiscard]] std::string command_word(Command command);

/// An option that a command reads itself. `values` and `numbers` may be given several times, numbers also as "1,2,4".
struct OwnOption {
  enum class Kind { flag, value, values, numbers };
  std::string name = "";
  Kind kind = Kind::value;
};

/// What a command reads itself: its options, and the words of which one may follow it ("levin checkpoint inspect").
struct OwnArguments {
  std::vector<OwnOption> options = {};
  std::vector<std::string> actions = {};
};

/// The options of fit, validate, test and predict that are not part of a run's configuration, of "levin" itself without
/// a command, and nothing for other commands.
[[nodiscard]] std::vector<OwnOption> own_options_of_run(std::optional<Command> command);

/// A command's own options, and all its other arguments.
struct SplitArguments {
  ConfigNode options = ConfigNode::map();  // by name; a flag is true, an option of several values a list
  std::vector<std::string> rest = {};      // files, folders and options of a run, in their order
  bool help = false;                       // -h or --help is among them
};

/// Takes --NAME=VALUE and --NAME VALUE out of the arguments if NAME, or its part before the first dot, is in `own`.
/// A name with dashes may be written with underscores. An option without its value becomes a problem.
[[nodiscard]] SplitArguments split_arguments(const std::vector<std::string>& arguments,
                                             const std::vector<OwnOption>& own, Problems& problems);

/// The options of a struct: bools are flags, lists take several values.
[[nodiscard]] std::vector<OwnOption> own_options(const FieldList& fields);

/// Splits the arguments of a command whose own options are the fields of `options`, and reads these.
template <class Options>
[[nodiscard]] SplitArguments read_own_options(const std::vector<std::string>& arguments, Options& options,
                                              Problems& problems) {
  SplitArguments split = split_arguments(arguments, own_options(Options::fields()), problems);
  read_options(split.options, options, "", problems);
  return split;
}

/// For a command that is not about one run: options in `rest` are unknown, and become problems that name the nearest
/// option of `own`; so do arguments after the first `most`, for which `surplus` is the reason.
void refuse_rest(const std::vector<std::string>& rest, const std::vector<OwnOption>& own, size_t most,
                 const std::string& surplus, Problems& problems);

}  // namespace levin
