#include "levin/trainer/trainer_options.h"

namespace levin {

bool ValueType<LoggerChoice>::read(const ConfigNode& node, LoggerChoice& value, const std::string& path,
                                   Problems& problems) {
  value = LoggerChoice();
  if (node.is_null() || detail::parse_bool(node, value.enabled)) return true;
  value.enabled = true;
  return ValueType<ComponentList<Logger>>::read(node, value.loggers, path, problems);
}

ConfigNode ValueType<LoggerChoice>::write(const LoggerChoice& value) {
  if (value.loggers.empty()) return ValueType<bool>::write(value.enabled);
  return ValueType<ComponentList<Logger>>::write(value.loggers);
}

}  // namespace levin
