#include "levin/cli/commands/report.h"

#include "levin/core/process/console.h"
#include "levin/core/process/main_guard.h"

namespace levin {

int print_usage(const std::string& usage) {
  Console::instance().print(usage);
  return kExitOk;
}

int report_problems(const Problems& problems, const std::string& conclusion) {
  for (const auto& line : problems.lines()) Console::instance().error(line);
  Console::instance().error(conclusion);
  return kExitBadConfig;
}

void warn_of_initial_weights(const std::string& command, const RunConfig& config) {
  if (!config.ckpt_path.value_or("").empty() || config.weights) return;
  Console::instance().warn(
      "levin " + command +
      ": neither ckpt_path nor weights were given, so the model has its initial weights: new ones, "
      "or those in files that its options name. For the weights of a run, pass --ckpt_path best, "
      "last or a file.");
}

}  // namespace levin
