#include "levin/cli/commands/convert.h"

#include <filesystem>

#include "levin/cli/commands/help_text.h"
#include "levin/cli/commands/report.h"
#include "levin/cli/config/arguments.h"
#include "levin/cli/config/commented_yaml.h"
#include "levin/cli/config/lightning_file.h"
#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/main_guard.h"
#include "levin/yaml/yaml_file.h"

namespace levin {

namespace {

constexpr const char* kNothingWritten = "nothing was written. See levin convert --help.";

std::string convert_usage(int width) {
  return "levin convert FILE [--output FILE] [options]\n\n" +
         wrapped(
             "Makes a run file of one that Lightning's LightningCLI reads, or prints with \"python main.py fit "
             "--print_config\". What cannot be translated is listed, each with its position and what to do instead, "
             "and "
             "stands in the new file as a comment; the exit status is 4 then, else 0.",
             width) +
         "\n" + own_options_table(describe_options<ConvertOptions>(), width);
}

// A wrong name must not overwrite anything.
void check_output(const std::string& output, Problems& problems) {
  std::error_code ignored;
  if (!output.empty() && std::filesystem::exists(output, ignored))
    problems.add({}, "--output", output + " exists. Give a different name, or remove it.");
}

std::string header(const std::string& input) {
  return "# Made by levin convert of " + cut_text(std::filesystem::path(input).filename().string()) +
         ". Options with their default are not written.\n";
}

}  // namespace

int run_convert(const std::vector<std::string>& arguments, int width) {
  Console& console = Console::instance();
  Problems problems;
  ConvertOptions options;
  const SplitArguments read = read_own_options(arguments, options, problems);
  if (read.help) return print_usage(convert_usage(width));
  if (read.rest.empty()) problems.add({}, "levin convert", "no file was given. Write levin convert FILE.");
  refuse_rest(read.rest, own_options(ConvertOptions::fields()), 1, "a second file. Convert one at a time.", problems);
  check_output(options.output, problems);
  if (!problems.empty()) return report_problems(problems, kNothingWritten);

  const std::string& input = read.rest[0];
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
