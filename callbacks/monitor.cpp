#include "levin/callbacks/monitor.h"

#include <algorithm>
#include <cstdlib>

#include "levin/core/options/error.h"
#include "levin/trainer/measured_metrics.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

// One metric per line; hexadecimal digits preserve every bit.
std::string to_text(const Metrics& metrics) {
  std::string text;
  for (const auto& [name, value] : metrics) text += formatted("%a ", value) + name + "\n";
  return text;
}

Metrics from_text(const std::string& text) {
  Metrics metrics;
  for (const std::string& line : split(text, '\n')) {
    const size_t space = line.find(' ');
    metrics[line.substr(space + 1)] = std::strtod(line.c_str(), nullptr);
  }
  return metrics;
}

}  // namespace

bool has_logger(const Trainer& trainer, const std::string& who) {
  if (!trainer.loggers().empty()) return true;
  if (trainer.plan().fast_dev_run) return false;
  throw ConfigError(who + ": the trainer has no logger to write to. Set TrainerOptions.logger, or drop the callback.");
}

Metrics metrics_of_rank_zero(Trainer& trainer, Metrics own) {
  if (trainer.world_size() == 1) return own;
  return from_text(trainer.strategy().ranks().broadcast(trainer.global_rank() == 0 ? to_text(own) : ""));
}

bool are_measured_now(Trainer& trainer, const std::vector<std::string>& metrics) {
  const bool own = std::all_of(metrics.begin(), metrics.end(), [&](const std::string& metric) {
    return measured_at(trainer, metric) == trainer.seen_batches();
  });
  if (trainer.world_size() == 1 || metrics.empty()) return own;
  return !trainer.strategy().ranks().broadcast(trainer.global_rank() == 0 && own ? "yes" : "").empty();
}

}  // namespace levin
