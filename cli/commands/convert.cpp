#include "levin/cli/commands/convert.h"

#include <filesystem>

#include "levin/cli/commands/command_words.h"
#include "levin/cli/commands/help_text.h"
#include "levin/cli/commands/report.h"
#include "levin/cli/config/commented_yaml.h"
#include "levin/cli/config/lightning_file.h"
#include "levin/core/console.h"
#include "levin/core/count_of.h"
#include "levin/core/exit_codes.h"
#include "levin/core/files.h"
#include "levin/yaml/yaml_file.h"

namespace levin {

namespace {

constexpr const char* kNothingWritten = "nothing was written. See levin convert --help.";

std::string convert_usage(int width) {
  return "levin convert FILE [--output FILE] [options]\n\n" +
         wrapped(
             "Makes a run file of one that Lightning's LightningCLI reads, or prints with \"python main.py fit "
             "--print_config\". What cannot be translated is listed, each with its place and what to do instead, and "
             "stands in the new file as a comment; the exit status is 4 then, else 0.",
             width) +
         "\n" + options_table(describe_options<ConvertOptions>(), width);
}

// A wrong name must not overwrite anything.
void check_output(const std::string& output, Problems& problems) {
  std::error_code ignored;
  if (!output.empty() && std::filesystem::exists(output, ignored))
    problems.add({}, "--output", output + " is there already. Give another name, or remove it.");
}

std::string header(const std::string& input) {
  return "# Made by levin convert of " + cut_text(std::filesystem::path(input).filename().string()) +
         ". Options with their default are not written.\n";
}

}  // namespace

int run_convert(const std::vector<std::string>& words, int width) {
  Console& console = Console::instance();
  Problems problems;
  const CommandWords read = read_command_words(words, field_names<ConvertOptions>(), {}, problems);
  if (read.help) {
    console.print(convert_usage(width));
    return kExitOk;
  }
  ConvertOptions options;
  read_options(read.options, options, "", problems);
  if (read.run.empty()) problems.add({}, "levin convert", "no file was given. Write levin convert FILE.");
  for (size_t k = 0; k < read.run.size(); ++k) {
    const bool is_option = read.run[k].starts_with("-");
    if (is_option || k > 0)
      problems.add({}, "\"" + cut_text(read.run[k]) + "\"",
                   is_option ? "unknown option. See levin convert --help." : "a second file. Convert one at a time.");
  }
  check_output(options.output, problems);
  if (!problems.empty()) return report_problems(problems, kNothingWritten);

  const std::string& input = read.run[0];
  const ConfigNode file = read_yaml_input(input, problems);
  if (!problems.empty()) return report_problems(problems, kNothingWritten);
  const TranslatedFile translated =
      translate_lightning_file(file, {options.model, options.data, options.optimizer, options.lr_scheduler}, problems);
  if (!problems.empty()) return report_problems(problems, kNothingWritten);

  const std::string text = header(input) + to_commented_yaml(translated.config);
  if (options.output.empty()) {
    console.print(text.substr(0, text.size() - 1));
  } else {
    write_output(options.output, text);
    console.print(options.output + " is written.");
  }
  for (const auto& note : translated.notes) console.warn(note);
  for (const auto& line : translated.left_out.lines()) console.warn(line);
  const size_t count = translated.left_out.size();
  if (count == 0) return kExitOk;
  console.warn(count_of(count, "thing was", "things were") + " left out, and " +
               (count == 1 ? "is a comment" : "are comments") + " in the new file.");
  return kExitPartly;
}

}  // namespace levin
