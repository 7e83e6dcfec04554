#include "levin/cli/commands/command_words.h"

#include <algorithm>
#include <utility>

namespace levin {

namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// "lr_finder.mode" is an option of lr_finder.
void set_option(ConfigNode& options, const std::string& name, const std::string& value) {
  const size_t dot = name.find('.');
  if (dot == std::string::npos) {
    options.set(name, ConfigNode::scalar(value));
    return;
  }
  const ConfigNode* known = options.find(name.substr(0, dot));
  ConfigNode inner = known != nullptr ? *known : ConfigNode::map();
  set_option(inner, name.substr(dot + 1), value);
  options.set(name.substr(0, dot), std::move(inner));
}

}  // namespace

CommandWords read_command_words(const std::vector<std::string>& words, const std::vector<std::string>& known,
                                const std::vector<std::string>& flags, Problems& problems) {
  CommandWords read;
  for (size_t k = 0; k < words.size(); ++k) {
    const std::string& word = words[k];
    const size_t equals = std::min(word.find('='), word.size());
    const std::string name = word.starts_with("--") ? word.substr(2, equals - 2) : "";
    if (word == "-h" || word == "--help") {
      read.help = true;
    } else if (!contains(known, name.substr(0, name.find('.')))) {
      read.run.push_back(word);
    } else if (equals < word.size()) {
      set_option(read.options, name, word.substr(equals + 1));
    } else if (contains(flags, name)) {
      set_option(read.options, name, "true");
    } else if (k + 1 < words.size()) {
      set_option(read.options, name, words[++k]);
    } else {
      problems.add({}, "--" + name, "no value follows. Write --" + name + "=VALUE.");
    }
  }
  return read;
}

}  // namespace levin
