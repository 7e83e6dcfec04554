#include "levin/callbacks/monitor.h"

#include "levin/trainer/trainer.h"

namespace levin {

std::string missing_metric_text(const std::string& who, const std::string& monitor, const Trainer& trainer,
                                const Metrics& logged) {
  std::vector<std::string> names;
  for (const auto& [name, value] : logged) names.push_back(name);
  return who + ": metric \"" + monitor + "\" was never logged by epoch " + std::to_string(trainer.current_epoch()) +
         ". Logged: " + join(names) + "." + did_you_mean(monitor, names);
}

}  // namespace levin
