// Translates options of the trainer from Lightning's early articles:
//   gpus: [0, 1]   nb_gpu_nodes: 128   distributed_backend: ddp   use_amp: true   amp_level: O2
#pragma once

#include <string>
#include <vector>

#include "levin/core/options/config_node.h"
#include "levin/core/options/value.h"

namespace levin {

/// Replaces the old keys of a run file's `trainer` by the present ones (accelerator, devices, num_nodes, strategy,
/// precision), at the old ones' places in the file. An old key that contradicts a present one is a problem that names
/// both. Returns a line for each old key, which names the new spelling.
[[nodiscard]] std::vector<std::string> translate_old_options(ConfigNode& trainer, Problems& problems);

/// The old keys, for suggestions if one is in the wrong place.
[[nodiscard]] std::vector<std::string> old_option_names();

}  // namespace levin
