#include "levin/cli/commands/sweep_words.h"

#include <algorithm>
#include <cstddef>

#include "levin/cli/commands/command_words.h"
#include "levin/cli/sweep/sweep_options.h"

namespace levin {

namespace {

// "--search.method=asha" or "--slots 4". Keys of `space` contain dots themselves, so they stand in the file only.
void split_overrides(const std::vector<std::string>& words, SweepWords& read, Problems& problems) {
  const std::vector<std::string> keys = field_names<SweepOptions>();
  size_t k = 0;
  while (k < words.size() && !words[k].starts_with("-")) read.names.push_back(words[k++]);
  for (; k < words.size(); ++k) {
    const std::string& word = words[k];
    const size_t equals = std::min(word.find('='), word.size());
    const std::string path = word.starts_with("--") ? word.substr(2, equals - 2) : "";
    const std::string key = path.substr(0, path.find('.'));
    if (key == "space" || std::find(keys.begin(), keys.end(), key) == keys.end()) {
      read.run_words.push_back(word);
    } else if (equals < word.size()) {
      read.changes.push_back({path, word.substr(equals + 1)});
    } else if (k + 1 < words.size()) {
      read.changes.push_back({path, words[++k]});
    } else {
      problems.add({}, word, "no value follows. Write " + word + "=VALUE.");
    }
  }
}

}  // namespace

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
  split_overrides(given.run, read, problems);
  read.folder = text("folder");
  read.params = text("params");
  read.value = text("value");
  read.output = text("output");
  read.timeout = text("timeout");
  read.json = text("json") == "true";
  read.prepare = text("prepare") == "true";
  read.slurm = text("slurm") == "true";
  help = given.help;
  return read;
}

}  // namespace levin
