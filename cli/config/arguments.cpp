#include "levin/cli/config/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "levin/cli/config/run_config.h"
#include "levin/core/error.h"

namespace levin {

namespace {

constexpr std::array kCommands{
    std::pair{"fit", Command::fit},
    std::pair{"validate", Command::validate},
    std::pair{"test", Command::test},
    std::pair{"predict", Command::predict},
    std::pair{"checkpoint", Command::checkpoint},
    std::pair{"submit", Command::submit},
    std::pair{"plan", Command::plan},
    std::pair{"tune", Command::tune},
    std::pair{"top", Command::top},
    std::pair{"sweep", Command::sweep},
    std::pair{"convert", Command::convert},
    std::pair{"export", Command::export_model},
    std::pair{"runs", Command::runs},
    std::pair{"report", Command::report},
    std::pair{"list", Command::list},
    std::pair{"help", Command::help},
};

bool is_run(Command command) {
  return command == Command::fit || command == Command::validate || command == Command::test ||
         command == Command::predict;
}

std::vector<std::string> command_words() {
  std::vector<std::string> words;
  for (const auto& [word, command] : kCommands) words.emplace_back(word);
  return words;
}

// Extracts files and overrides, in order, and leaves the rest to CLI11, which would lose the order between known
// options (--config) and others (--trainer.max_epochs).
class SourceReader {
 public:
  SourceReader(const std::vector<std::string>& args, Problems& problems) : args_(args), problems_(problems) {}

  void read() {
    const std::vector<std::string> keys = field_names<RunConfig>();
    for (; at_ < args_.size(); ++at_) {
      const std::string& arg = args_[at_];
      const size_t name_end = std::min(arg.find_first_of(".[+="), arg.size());
      const bool is_option = arg.starts_with("--") && name_end > 2;
      const std::string key = is_option ? arg.substr(2, name_end - 2) : "";
      if (arg == "-c" || key == "config") {
        read_file(arg);
      } else if (std::find(keys.begin(), keys.end(), key) != keys.end()) {
        read_override(arg);
      } else {
        rest.push_back(arg);
      }
    }
  }

  std::vector<ConfigSource> sources = {};
  std::vector<std::string> rest = {};

 private:
  // The argument after `option`; unset if there is none.
  std::optional<std::string> next_value(const std::string& option, const std::string& how) {
    const bool has_value = at_ + 1 < args_.size() && !args_[at_ + 1].starts_with("--");
    if (has_value) return args_[++at_];
    problems_.add({}, option, "no value follows. Write " + how + ".");
    return std::nullopt;
  }

  void read_file(const std::string& arg) {
    const size_t equals = arg.find('=');
    std::string path = equals == std::string::npos ? "" : arg.substr(equals + 1);
    if (equals == std::string::npos) {
      const auto value = next_value(arg, "--config FILE");
      if (!value) return;
      path = *value;
    }
    if (arg != "-c" && arg.substr(0, std::min(equals, arg.size())) != "--config") {
      rest.push_back(arg);
    } else if (path.empty()) {
      problems_.add({}, arg, "the file's name is empty. Write --config FILE.");
    } else {
      sources.emplace_back(ConfigFile{path});
    }
  }

  void read_override(const std::string& arg) {
    const size_t equals = arg.find('=');
    Override change;
    change.path = arg.substr(2, equals == std::string::npos ? equals : equals - 2);
    if (change.path.ends_with('+')) {
      change.path.pop_back();
      change.append = true;
    }
    if (equals != std::string::npos) {
      change.value = arg.substr(equals + 1);
    } else if (const auto value = next_value(arg, arg + "=VALUE (null for nothing, [] for an empty list)")) {
      change.value = *value;
    } else {
      return;
    }
    sources.emplace_back(std::move(change));
  }

  const std::vector<std::string>& args_;
  Problems& problems_;
  size_t at_ = 0;
};

void report_extra(const std::string& extra, bool has_command, const std::vector<std::string>& trainer_options,
                  Problems& problems) {
  if (!extra.starts_with('-')) {
    const bool is_file = extra.ends_with(".yaml") || extra.ends_with(".yml");
    std::string what =
        has_command ? "unexpected argument." : "unknown subcommand. Known: " + join(command_words()) + ".";
    if (is_file)
      what += " Did you mean " + std::string(has_command ? "" : "fit ") + "--config " + cut_text(extra) + "?";
    if (!is_file && !has_command) what += did_you_mean(extra, command_words());
    problems.add({}, "\"" + cut_text(extra) + "\"", what);
    return;
  }
  const std::string option = extra.substr(0, extra.find('='));
  const std::string name = option.substr(std::min(option.find_first_not_of('-'), option.size()));
  const std::string first = name.substr(0, name.find_first_of(".["));
  std::vector<std::string> known{"config", "print_config", "log_level", "log_format", "help", "version"};
  for (const auto& key : field_names<RunConfig>()) known.push_back(key);
  std::string near = nearest_name(first, known);
  if (!near.empty()) near += name.substr(first.size());
  const std::string in_trainer = nearest_name(name, trainer_options);
  if (near.empty() && !in_trainer.empty()) near = "trainer." + in_trainer;
  std::string what = "unknown option.";
  if (!near.empty()) what += " Did you mean --" + near + "?";
  if (near.empty() && first == name && !name.empty()) {
    const std::string shown = cut_text(name);
    what += " One of the model's is written --model." + shown + ", of the data --data." + shown +
            ", of the optimizer --optimizer." + shown + ".";
  }
  problems.add({}, cut_text(option),
               what + " Options of a run are written --trainer.NAME=VALUE, --model.NAME=VALUE, …; see --help.");
}

void add_options(CLI::App& app, Arguments& result, bool& version) {
  app.set_help_flag();  // help lists options that CLI11 does not know: see help_text.h
  app.allow_extras();
  app.add_flag("--version", version);
  app.add_flag("-h,--help", result.help);
  for (const auto& [word, command] : kCommands) {
    CLI::App* sub = app.add_subcommand(word);
    sub->set_help_flag();
    sub->allow_extras();
    sub->add_flag("-h,--help", result.help);
    if (is_run(command)) {
      sub->add_flag("--print_config", result.print_config);
      sub->add_option("--log_level", result.log_level);
      sub->add_option("--log_format", result.log_format);
    }
    if (command == Command::predict) sub->add_option("--output", result.output);
    if (!is_run(command)) sub->add_option("topic", result.topic);
  }
}

// "levin list" and "levin help" open the libraries that these name, and read nothing else of them.
void check_sources(const Arguments& result, Problems& problems) {
  if (is_run(result.command)) return;
  const bool opens_plugins = result.command == Command::list || result.command == Command::help;
  for (const ConfigSource& source : result.sources) {
    const auto* change = std::get_if<Override>(&source);
    const bool names_plugins = change == nullptr || change->path == "plugins" || change->path.starts_with("plugins[") ||
                               change->path.starts_with("plugins.");
    if (opens_plugins && names_plugins) continue;
    problems.add({}, command_word(result.command),
                 opens_plugins ? "takes only --plugins and --config, but got " + change->str() + "."
                               : "takes no --config and no options of a run.");
    return;
  }
}

}  // namespace

std::string command_word(Command command) {
  for (const auto& [word, known] : kCommands) {
    if (known == command) return word;
  }
  return "--version";
}

Arguments parse_arguments(const std::vector<std::string>& args, const std::vector<std::string>& trainer_options,
                          Problems& problems) {
  Arguments result;
  for (const Command reader :
       {Command::checkpoint, Command::submit, Command::plan, Command::tune, Command::sweep, Command::convert,
        Command::export_model, Command::top, Command::runs, Command::report}) {  // they parse their words themselves
    if (args.empty() || args[0] != command_word(reader)) continue;
    result.command = reader;
    result.words.assign(args.begin() + 1, args.end());
    return result;
  }
  SourceReader reader(args, problems);
  reader.read();

  CLI::App app;
  bool version = false;
  add_options(app, result, version);
  try {
    app.parse(std::vector<std::string>(reader.rest.rbegin(), reader.rest.rend()));  // CLI11 takes them in reverse order
  } catch (const CLI::ParseError& error) {
    problems.add({}, "", std::string(error.what()) + ". See levin --help.");
    return result;
  }
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  for (const auto& extra : app.remaining(true)) report_extra(extra, !chosen.empty(), trainer_options, problems);
  if (version) result.command = Command::version;
  if (chosen.empty() || version) return result;
  // CLI11 sees two subcommands in "levin help fit", which is "levin fit --help".
  const bool help_with_command = chosen[0]->get_name() == "help" && chosen.size() == 2;
  if (help_with_command) result.help = true;
  if (chosen.size() > 1 && !help_with_command) {
    problems.add({}, chosen[1]->get_name(),
                 "a second subcommand after " + chosen[0]->get_name() + ". Run them one after another.");
  }
  for (const auto& [word, command] : kCommands) {
    if (chosen[help_with_command ? 1 : 0]->get_name() == word) result.command = command;
  }
  result.sources = std::move(reader.sources);
  check_sources(result, problems);
  return result;
}

}  // namespace levin
