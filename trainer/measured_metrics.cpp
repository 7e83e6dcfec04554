#include "levin/trainer/measured_metrics.h"

#include <vector>

#include "levin/core/options/error.h"
#include "levin/loggers/logger.h"
#include "levin/trainer/run/run.h"
#include "levin/trainer/run/run_access.h"

namespace levin {

namespace {

std::vector<std::string> monitored_names(const Trainer& trainer) {
  std::vector<std::string> names;
  for (const auto& [name, value] : trainer.callback_metrics()) names.push_back(name);
  return names;
}

std::string batch_only_text(const std::string& who, const std::string& metric) {
  return who + ": metric \"" + metric +
         "\" is logged per batch only (on_step), so a validation as a whole has no value to compare. Log it with "
         ".on_epoch = true.";
}

}  // namespace

std::optional<int64_t> measured_at(const Trainer& trainer, const std::string& metric) {
  Run& run = RunAccess::of(trainer);
  run.refresh_callback_metrics();
  const auto found = run.entry.measured_at.find(metric);
  if (found == run.entry.measured_at.end()) return std::nullopt;
  return found->second;
}

bool may_still_be_measured(const Trainer& trainer) {
  const Run& run = RunAccess::of(trainer);
  return run.progress.processed == 0 || (trainer.has_validation() && run.entry.validations == 0);
}

bool validation_follows(const Trainer& trainer) {
  return RunAccess::of(trainer).fit.epoch.validation_follows;
}

std::string missing_metric_text(const Trainer& trainer, const std::string& who, const std::string& metric) {
  if (RunAccess::of(trainer).entry.batch_only.contains(metric)) return batch_only_text(who, metric);
  const std::vector<std::string> names = monitored_names(trainer);
  return who + ": metric \"" + metric + "\" was never logged by epoch " + std::to_string(trainer.current_epoch()) +
         ". Logged: " + join(names) + "." + did_you_mean(metric, names);
}

void expect_metric(const Trainer& trainer, const std::string& who, const std::string& metric) {
  if (metric.empty() || is_counter_name(metric)) return;
  RunAccess::of(trainer).fit.expected_metrics.emplace_back(who, metric);
}

}  // namespace levin
