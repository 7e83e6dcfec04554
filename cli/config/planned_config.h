// Changes trainer.recompute in the text of a run file, and nothing else; comments are kept.
#pragma once

#include <string>
#include <vector>

namespace levin {

/// `text` (of the file `path`) with trainer.recompute: {modules}, replacing an existing one; without `modules` the key
/// is removed. Throws ConfigError with what to write by hand if the file's form does not allow this without changing
/// the rest.
[[nodiscard]] std::string with_recompute(const std::string& text, const std::string& path,
                                         const std::vector<std::string>& modules);

}  // namespace levin
