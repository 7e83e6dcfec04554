#include "levin/cli/commands/sweep_words.h"

#include <cstddef>

#include "levin/cli/commands/command_words.h"

namespace levin {

SweepWords read_sweep_words(std::vector<std::string> words, bool& help, Problems& problems) {
  SweepWords read;
  for (size_t k = 0; k < words.size();) {  // repeated, so read here
    const std::string option = "--slurm-option";
    const bool joined = words[k].starts_with(option + "=");
    if (words[k] != option && !joined) {
      ++k;
      continue;
    }
    const bool has_value = joined || k + 1 < words.size();
    const std::string text = joined ? words[k].substr(option.size() + 1) : has_value ? words[k + 1] : "";
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      problems.add({}, option, "expected NAME=VALUE, got \"" + cut_text(text) + "\".");
    } else {
      read.slurm_options.emplace_back(text.substr(0, equals), text.substr(equals + 1));
    }
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(k),
                words.begin() + static_cast<std::ptrdiff_t>(k + (joined || !has_value ? 1 : 2)));
  }
  const std::vector<std::string> known{"folder", "params", "value", "output", "timeout", "json", "prepare", "slurm"};
  const CommandWords given = read_command_words(words, known, {"json", "prepare", "slurm"}, problems);
  const auto text = [&](const char* name) {
    const ConfigNode* node = given.options.find(name);
    return node == nullptr ? std::string() : node->text;
  };
  read.names = given.run;
  read.folder = text("folder");
  read.params = text("params");
  read.value = text("value");
  read.output = text("output");
  read.timeout = text("timeout");
  read.json = text("json") == "true";
  read.prepare = text("prepare") == "true";
  read.slurm = text("slurm") == "true";
  help = given.help;
  for (const auto& name : read.names) {
    if (name.starts_with("--"))
      problems.add({}, cut_text(name), "unknown option." + did_you_mean(name.substr(2), known));
  }
  return read;
}

}  // namespace levin
