#include "levin/recompute/recompute_options.h"

#include "levin/core/options/error.h"

namespace levin {

RecomputeChoice::RecomputeChoice(const char* word) : automatic(true) {
  if (std::string(word) != "auto") {
    throw ConfigError("recompute: \"" + std::string(word) +
                      "\" is not auto. Give {modules}, {checkpoints} or {budget}.");
  }
}

bool ValueType<RecomputeChoice>::read(const ConfigNode& node, RecomputeChoice& value, const std::string& path,
                                      Problems& problems) {
  value = RecomputeChoice();
  if (node.is_null()) return true;
  if (node.is_scalar() && node.text == "auto") {
    value.automatic = true;
    return true;
  }
  if (node.is_scalar()) return detail::expected("auto, or modules, checkpoints or budget", node, path, problems);
  value.options.emplace();
  return ValueType<RecomputeOptions>::read(node, *value.options, path, problems);
}

ConfigNode ValueType<RecomputeChoice>::write(const RecomputeChoice& value) {
  if (value.automatic) return ConfigNode::scalar("auto");
  if (!value.options) return ConfigNode{};
  return ValueType<RecomputeOptions>::write(*value.options);
}

}  // namespace levin
