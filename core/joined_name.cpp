#include "levin/core/joined_name.h"

#include <algorithm>
#include <filesystem>

#include "levin/core/error.h"

namespace levin {

void check_joined_name(const std::string& option, const std::string& name, const std::string& folder) {
  const std::filesystem::path path(name);
  if (path.is_relative() && std::find(path.begin(), path.end(), "..") == path.end()) return;
  throw ConfigError(option + ": \"" + cut_text(name, 200) + "\" leads out of " + folder +
                    ". Write a name without \"..\" that does not begin with /, and choose the folder with " + folder +
                    ".");
}

}  // namespace levin
