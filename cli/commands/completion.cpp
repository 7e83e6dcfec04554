#include "levin/cli/commands/completion.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "levin/cli/commands/embedded_files.h"
#include "levin/cli/commands/report.h"
#include "levin/cli/config/merge.h"
#include "levin/cli/config/run_config.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/main_guard.h"

namespace levin {

namespace {

constexpr std::array kRunCommands{Command::fit,   Command::validate,    Command::test, Command::predict,
                                  Command::tune,  Command::submit,      Command::plan, Command::sweep,
                                  Command::check, Command::export_model};

// "levin.bash" is for bash.
std::string shell_of(const EmbeddedFile& script) {
  return std::string(script.path.substr(script.path.find('.') + 1));
}

// Finds the completions of the last word.
class Completer {
 public:
  Completer(const std::vector<std::string>& words, const CompletedProgram& program)
      : words_(words), word_(words.empty() ? "" : words.back()), program_(program) {}

  Completions complete() {
    command_ = words_.size() > 1 ? find_command(words_[0]) : std::nullopt;
    if (words_.size() <= 1) {
      for (const auto& name : subcommands()) add(name);
      for (const char* option : {"--help", "--version"}) add_option(option);
    } else if (command_ == Command::help) {
      add_help_topics();
    } else if (command_ == Command::list) {
      for (const ClassKind& kind : program_.kinds) add(kind.name);
    } else if (command_ == Command::completion) {
      for (const EmbeddedFile& script : kShellScripts) add(shell_of(script));
    } else if (command_) {
      add_arguments();
    }
    return std::move(result_);
  }

 private:
  void add(const std::string& word, const std::string& meaning = "") {
    if (word.starts_with(word_)) result_.words.push_back({word, meaning});
  }
  // Shown once the first dash is typed.
  void add_option(const std::string& word, const std::string& meaning = "") {
    if (word_.starts_with('-')) add(word, meaning);
  }

  void add_help_topics() {
    for (const auto& name : subcommands()) add(name);
    add("trainer");
    if (word_.starts_with("trainer.")) {
      for (const FieldInfo& option : program_.trainer) add("trainer." + option.name, option.doc);
    }
    for (const ClassKind& kind : program_.kinds) {
      for (const ClassEntry& entry : kind.classes) add(entry.name, entry.doc);
    }
  }

  [[nodiscard]] bool takes_run() const {
    return std::find(kRunCommands.begin(), kRunCommands.end(), *command_) != kRunCommands.end();
  }

  // "--NAME=VALUE", "--NAME VALUE", or a file.
  void add_arguments() {
    const size_t equals = word_.find('=');
    const std::string& before = words_[words_.size() - 2];
    if (word_.starts_with("--") && equals != std::string::npos) {
      add_values(word_.substr(2, equals - 2), word_.substr(0, equals + 1));
    } else if (before == "-c" || (before.starts_with("--") && before.find('=') == std::string::npos &&
                                  !word_.starts_with('-') && takes_value(before.substr(2)))) {
      add_values(before == "-c" ? "config" : before.substr(2), "");
    } else if (word_.starts_with('-')) {
      add_options();
    } else {
      if (words_.size() == 2) {
        for (const auto& action : program_.own_arguments(*command_).actions) add(action);
      }
      result_.files = *command_ != Command::new_project;
    }
  }

  [[nodiscard]] std::vector<OwnOption> own() const {
    std::vector<OwnOption> options = own_options_of_run(command_);
    if (options.empty()) options = program_.own_arguments(*command_).options;
    return options;
  }

  [[nodiscard]] bool takes_value(const std::string& name) const {
    const auto options = own();
    const auto found =
        std::find_if(options.begin(), options.end(), [&](const auto& each) { return each.name == name; });
    return name != "help" && (found == options.end() ? takes_run() : found->kind != OwnOption::Kind::flag);
  }

  void add_options() {
    add("--help");
    for (const OwnOption& option : own()) add("--" + option.name + (option.kind == OwnOption::Kind::flag ? "" : "="));
    if (!takes_run()) return;
    add("--config=", "a run file");
    for (const FieldInfo& key : describe_options<RunConfig>()) {
      if (key.name != "trainer" && key.name != "weights") add("--" + key.name + "=", key.doc);
      for (const FieldInfo& option : options_below(key.name)) {
        // All of them only after the dot: there are two hundred.
        if (word_.starts_with("--" + key.name + ".")) {
          add("--" + key.name + "." + option.name + (is_list(option) ? "+=" : "="), option.doc);
        } else {
          add("--" + key.name + ".");
          break;
        }
      }
    }
  }

  static bool is_list(const FieldInfo& option) { return option.type == "list of callbacks"; }

  // The options of the trainer, or of the class that the run has at `key`.
  [[nodiscard]] std::vector<FieldInfo> options_below(const std::string& key) const {
    if (key == "trainer") return program_.trainer;
    if (key == "weights") return describe_options<WeightsOptions>();
    const ClassKind* kind = kind_at(program_.kinds, key);
    if (kind == nullptr) return {};
    const std::string name = class_of_run(key);
    for (const ClassEntry& entry : kind->classes) {
      if (entry.name == name && entry.describe != nullptr) return entry.describe();
    }
    return {};
  }

  // By the files and overrides before the last word; mistakes in them do not matter here.
  [[nodiscard]] std::string class_of_run(const std::string& key) const {
    Problems ignored;
    std::vector<std::string> arguments = {"fit"};
    for (size_t k = 1; k + 1 < words_.size(); ++k) {
      const bool is_file = k == 1 && !words_[k].starts_with('-');  // levin check run.yaml
      if (is_file) arguments.emplace_back("--config");
      arguments.push_back(words_[k]);
    }
    const ConfigNode config = assemble_config(parse_arguments(arguments, {}, ignored).sources, ignored);
    const ConfigNode* node = config.find(key);
    if (node != nullptr && node->is_map()) node = node->find("class_path");
    return node != nullptr && node->is_scalar() ? ClassSpec(node->text, {}).short_name() : "";
  }

  // The type of the option with this name on the command line; "" if it is not known.
  [[nodiscard]] std::string type_of(const std::string& name) const {
    const size_t dot = name.find('.');
    const auto type_in = [](const std::vector<FieldInfo>& fields, const std::string& wanted) -> std::string {
      for (const FieldInfo& field : fields) {
        if (field.name == wanted) return field.type;
      }
      return "";
    };
    if (dot == std::string::npos) return type_in(describe_options<RunConfig>(), name);
    return type_in(options_below(name.substr(0, dot)), name.substr(dot + 1));
  }

  // `prefix` is "--NAME=" where name and value are one word.
  void add_values(std::string name, const std::string& prefix) {
    if (name.ends_with('+')) name.pop_back();
    const ClassKind* kind = kind_at(program_.kinds, name);
    const std::string type = type_of(name);
    bool has_text = kind == nullptr;
    size_t begin = 0;
    while (begin < type.size()) {
      const size_t end = std::min(type.find(" or ", begin), type.size());
      const std::string one = type.substr(begin, end - begin);
      if (one == "bool") {
        add(prefix + "true");
        add(prefix + "false");
        has_text = false;
      } else if (one.find('|') != std::string::npos) {
        for (const auto& choice : split(one, '|')) add(prefix + choice);
        has_text = false;
      } else if (one == "null") {
        add(prefix + "null");
      } else if (one == "int" || one == "float") {
        has_text = false;
      }
      begin = end + std::string_view(" or ").size();
    }
    if (name == "ckpt_path") {
      for (const char* which : {"best", "last"}) add(prefix + which);
    }
    if (kind != nullptr) {
      for (const ClassEntry& entry : kind->classes) add(prefix + entry.name, entry.doc);
    }
    result_.files = has_text;
  }

  const std::vector<std::string>& words_;
  const std::string word_;
  const CompletedProgram& program_;
  std::optional<Command> command_ = std::nullopt;
  Completions result_ = {};
};

std::string completion_usage(int width) {
  return "levin completion bash|zsh|fish\n\n" +
         wrapped(
             "Prints a script that completes commands, options, classes and files for a shell. It asks the program "
             "what "
             "fits, and so knows the program's own classes too, and the options of the classes in a run file.",
             width) +
         "\n  bash  ~/.bashrc:      source <(levin completion bash)\n"
         "  zsh   ~/.zshrc:       source <(levin completion zsh), after compinit\n"
         "  fish  config.fish:    levin completion fish | source\n";
}

// Returns the script for a program with a different name; its functions must not replace levin's.
std::string script_for(std::string_view script, const std::string& program) {
  std::string identifier = program;
  for (char& c : identifier) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  std::string out;
  const std::string_view name = "levin";
  for (size_t at = script.find(name); at != std::string_view::npos; at = script.find(name)) {
    const bool is_function = at > 0 && script[at - 1] == '_';
    out.append(script.substr(0, at)).append(is_function ? identifier : program);
    script.remove_prefix(at + name.size());
  }
  return out.append(script);
}

// The console adds one.
std::string without_last_newline(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

void print_completions(const Completions& found, bool with_meanings) {
  std::string out;
  for (const Completion& each : found.words) {
    out += each.word + (with_meanings && !each.meaning.empty() ? "\t" + cut_text(each.meaning) : "") + "\n";
  }
  if (found.files) out += ":files\n";
  if (!out.empty()) Console::instance().print(without_last_newline(out));
}

}  // namespace

Completions complete(const std::vector<std::string>& words, const CompletedProgram& program) {
  return Completer(words, program).complete();
}

int run_completion(const std::vector<std::string>& arguments, int width, const std::string& program,
                   const CompletedProgram& known) {
  if (!arguments.empty() && (arguments[0] == "--help" || arguments[0] == "-h"))
    return print_usage(completion_usage(width));
  std::vector<std::string> shells;
  for (const EmbeddedFile& script : kShellScripts) {
    shells.emplace_back(shell_of(script));
    if (arguments.empty() || arguments[0] != shells.back()) continue;
    if (arguments.size() > 1 && arguments[1] == "--") {
      print_completions(complete({arguments.begin() + 2, arguments.end()}, known), arguments[0] != "bash");
      return kExitOk;
    }
    if (arguments.size() == 1) return print_usage(without_last_newline(script_for(script.text, program)));
  }
  Problems problems;
  const std::string given = arguments.empty() ? "" : arguments[0];
  const bool is_known = std::find(shells.begin(), shells.end(), given) != shells.end();
  problems.add({}, "levin completion",
               given.empty() ? "a shell is missing. Known: " + join(shells) + "."
               : is_known    ? "unexpected argument \"" + cut_text(arguments[1]) + "\"."
                             : "unknown shell \"" + cut_text(given) + "\"." + known_names(given, shells));
  return report_problems(problems, "nothing was printed. See levin completion --help.");
}

}  // namespace levin
