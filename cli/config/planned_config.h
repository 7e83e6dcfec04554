// A run file with another trainer.recompute: its text as it is, comments and all, but for that one key.
#pragma once

#include <string>
#include <vector>

namespace levin {

/// `text` (of the file `path`) with trainer.recompute: {modules}, in the place of the one it has, if any; without
/// `modules` the key goes. Throws ConfigError with what to write by hand where the file is written in a way that this
/// cannot be done without touching the rest.
[[nodiscard]] std::string with_recompute(const std::string& text, const std::string& path,
                                         const std::vector<std::string>& modules);

}  // namespace levin
