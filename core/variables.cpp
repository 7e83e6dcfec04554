#include "levin/core/variables.h"

#include <cstdlib>

namespace levin {

Variables process_variables() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value != nullptr && *value != '\0' ? std::optional<std::string>(value) : std::nullopt;
  };
}

}  // namespace levin
