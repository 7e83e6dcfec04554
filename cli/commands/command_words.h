// The words of a command that has its own options in addition to those of a run: `levin plan memory --config run.yaml
// --budget=11GiB --trainer.precision=bf16-mixed`.
#pragma once

#include <string>
#include <vector>

#include "levin/core/config_node.h"
#include "levin/core/error.h"
#include "levin/core/value.h"

namespace levin {

struct CommandWords {
  ConfigNode options = ConfigNode::map();  // the command's own
  std::vector<std::string> run = {};       // all others, in their order
  bool help = false;                       // -h or --help is among them
};

/// Accepts --NAME=VALUE and --NAME VALUE if NAME, or its part before the first dot, is in `known`; a name in `flags`
/// needs no value and means true then. A name without its value becomes a problem.
[[nodiscard]] CommandWords read_command_words(const std::vector<std::string>& words,
                                              const std::vector<std::string>& known,
                                              const std::vector<std::string>& flags, Problems& problems);

}  // namespace levin
