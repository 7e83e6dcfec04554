// Names from a run file that are joined to a folder: they choose a place in it, never another folder.
#pragma once

#include <string>

namespace levin {

/// Throws ConfigError naming `option` if `name` leads out of the folder that it is joined to: if it is absolute or has
/// a part "..". `folder` is the option that chooses the folder.
void check_joined_name(const std::string& option, const std::string& name, const std::string& folder);

}  // namespace levin
