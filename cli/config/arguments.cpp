#include "levin/cli/config/arguments.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "levin/cli/config/run_config.h"
#include "levin/core/options/error.h"

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
    std::pair{"pack", Command::pack},
    std::pair{"runs", Command::runs},
    std::pair{"report", Command::report},
    std::pair{"new", Command::new_project},
    std::pair{"check", Command::check},
    std::pair{"schema", Command::schema},
    std::pair{"completion", Command::completion},
    std::pair{"list", Command::list},
    std::pair{"help", Command::help},
};

bool is_run(Command command) {
  return command == Command::fit || command == Command::validate || command == Command::test ||
         command == Command::predict;
}

// Extracts files and overrides, in order, and leaves all other arguments in `rest`.
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
    std::string what = has_command ? "unexpected argument." : "unknown subcommand. Known: " + join(subcommands()) + ".";
    if (is_file)
      what += " Did you mean " + std::string(has_command ? "" : "fit ") + "--config " + cut_text(extra) + "?";
    if (!is_file && !has_command) what += did_you_mean(extra, subcommands());
    if (has_command && extra.find('=') != std::string::npos) what += " Did you mean --" + cut_text(extra) + "?";
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

// "lr_finder.mode" is an option of lr_finder.
void set_option(ConfigNode& options, const std::string& name, const OwnOption& option, const std::string& value) {
  const size_t dot = name.find('.');
  if (dot != std::string::npos) {
    const ConfigNode* known = options.find(name.substr(0, dot));
    ConfigNode inner = known != nullptr ? *known : ConfigNode::map();
    set_option(inner, name.substr(dot + 1), option, value);
    options.set(name.substr(0, dot), std::move(inner));
  } else if (option.kind == OwnOption::Kind::values || option.kind == OwnOption::Kind::numbers) {
    const ConfigNode* known = options.find(name);
    ConfigNode list = known != nullptr ? *known : ConfigNode::list();
    for (size_t start = 0; start <= value.size();) {
      const size_t comma = option.kind == OwnOption::Kind::numbers ? value.find(',', start) : std::string::npos;
      list.items.push_back(ConfigNode::scalar(value.substr(start, comma - start)));
      start = std::min(comma, value.size()) + 1;
    }
    options.set(name, std::move(list));
  } else {
    options.set(name, ConfigNode::scalar(value));
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

std::vector<std::string> subcommands() {
  std::vector<std::string> names;
  for (const auto& [name, command] : kCommands) names.emplace_back(name);
  return names;
}

std::optional<Command> find_command(const std::string& name) {
  for (const auto& [known, command] : kCommands) {
    if (name == known) return command;
  }
  return std::nullopt;
}

std::vector<OwnOption> own_options_of_run(std::optional<Command> command) {
  using Kind = OwnOption::Kind;
  if (!command) return {{"version", Kind::flag}};
  if (!is_run(*command)) return {};
  std::vector<OwnOption> options{{"print_config", Kind::flag}, {"log_level"}, {"log_format"}};
  if (*command == Command::predict) options.push_back({"output"});
  return options;
}

std::string command_word(Command command) {
  for (const auto& [word, known] : kCommands) {
    if (known == command) return word;
  }
  return "--version";
}

Arguments parse_arguments(const std::vector<std::string>& args, const std::vector<std::string>& trainer_options,
                          Problems& problems) {
  Arguments result;
  const auto named = args.empty() ? std::nullopt : find_command(args[0]);
  if (named && !is_run(*named) && *named != Command::list && *named != Command::help) {
    result.command = *named;
    result.own.assign(args.begin() + 1, args.end());
    return result;
  }
  SourceReader reader(args, problems);
  reader.read();
  std::optional<Command> command;
  for (const auto& arg : reader.rest) {
    if (!command && !arg.starts_with('-')) command = find_command(arg);
  }
  const SplitArguments split = split_arguments(reader.rest, own_options_of_run(command), problems);
  const auto text = [&](const char* name) {
    const ConfigNode* value = split.options.find(name);
    return value == nullptr ? "" : value->text;
  };
  result.help = split.help;
  result.print_config = text("print_config") == "true";
  result.log_level = text("log_level");
  result.log_format = text("log_format");
  result.output = text("output");
  std::string first;  // the subcommand
  for (const auto& extra : split.rest) {
    const auto known = extra.starts_with('-') ? std::nullopt : find_command(extra);
    const bool takes_topic = !first.empty() && (result.command == Command::list || result.command == Command::help) &&
                             result.topic.empty() && !extra.starts_with('-');
    if (known && first.empty()) {
      first = extra;
      result.command = *known;
    } else if (known && takes_topic && result.command == Command::help) {  // "levin help fit" is "levin fit --help"
      result.command = *known;
      result.help = true;
    } else if (takes_topic) {
      result.topic = extra;
    } else if (known) {
      problems.add({}, extra, "a second subcommand after " + first + ". Run them one after another.");
    } else {
      report_extra(extra, !first.empty(), trainer_options, problems);
    }
  }
  if (text("version") == "true") result.command = Command::version;
  if (first.empty()) return result;
  result.sources = std::move(reader.sources);
  check_sources(result, problems);
  return result;
}

// One reader for all commands, and not CLI11, because a mistake on the command line must be found with all others and
// by its own name. CLI11 2.1.2, tried with the same options, takes "--time --nodes 2" for the time "--nodes", reads
// "--picture= --apply" as a picture called "--apply", accepts "--dry-run=yes", and stops at the first mistake. The
// options come from the structs that describe them, so that help, suggestions and types need no second list.
SplitArguments split_arguments(const std::vector<std::string>& arguments, const std::vector<OwnOption>& own,
                               Problems& problems) {
  SplitArguments split;
  const auto option_named = [&](const std::string& name) {
    return std::find_if(own.begin(), own.end(), [&](const OwnOption& option) { return option.name == name; });
  };
  for (size_t k = 0; k < arguments.size(); ++k) {
    const std::string& argument = arguments[k];
    const size_t equals = std::min(argument.find('='), argument.size());
    std::string name = argument.starts_with("--") ? argument.substr(2, equals - 2) : "";
    auto option = option_named(name.substr(0, name.find('.')));
    if (option == own.end()) {
      std::string dashed = name;
      std::replace(dashed.begin(), dashed.end(), '_', '-');
      option = option_named(dashed);
      if (option != own.end()) name = dashed;
    }
    const bool is_last = k + 1 == arguments.size();
    if (argument == "-h" || argument == "--help") {
      split.help = true;
    } else if (option == own.end()) {
      split.rest.push_back(argument);
    } else if (equals < argument.size()) {
      set_option(split.options, name, *option, argument.substr(equals + 1));
    } else if (option->kind == OwnOption::Kind::flag) {
      set_option(split.options, name, *option, "true");
    } else if (!is_last && !arguments[k + 1].starts_with("--")) {
      set_option(split.options, name, *option, arguments[++k]);
    } else {
      problems.add({}, "--" + name, "no value follows. Write --" + name + "=VALUE.");
    }
  }
  return split;
}

std::vector<OwnOption> own_options(const FieldList& fields) {
  std::vector<OwnOption> options;
  for (const AnyField& field : fields) {
    const std::string type = field.operations->name();
    options.push_back({field.name, type == "bool"                    ? OwnOption::Kind::flag
                                   : type.starts_with("list of int") ? OwnOption::Kind::numbers
                                   : type.starts_with("list of")     ? OwnOption::Kind::values
                                                                     : OwnOption::Kind::value});
  }
  return options;
}

void refuse_rest(const std::vector<std::string>& rest, const std::vector<OwnOption>& own, size_t most,
                 const std::string& surplus, Problems& problems) {
  std::vector<std::string> known;
  for (const OwnOption& option : own) known.push_back("--" + option.name);
  size_t count = 0;
  for (const auto& argument : rest) {
    const bool is_option = argument.starts_with("-") && argument.size() > 1;
    if (!is_option && ++count <= most) continue;
    problems.add({}, "\"" + cut_text(argument) + "\"",
                 is_option ? "unknown option." + did_you_mean(argument.substr(0, argument.find('=')), known) +
                                 (known.empty() ? "" : " Known: " + join(known) + ".")
                           : surplus);
  }
}

}  // namespace levin
