#include "levin/trainer/run/run.h"

namespace levin {

std::string Run::log_dir() const {
  const std::string own = loggers.empty() ? "" : loggers[0]->log_dir();
  return own.empty() ? plan.root_dir : own;
}

void Run::refresh_callback_metrics() {
  if (entry.phase == Phase::idle) return;
  for (const auto& [name, value] : store().monitored(on_step(), entry.phase == Phase::train))
    entry.callback_metrics[name] = value;
  for (const auto& [name, value] : store().shown(on_step())) entry.bar_metrics[name] = value;
}

void Run::write_metrics(const Metrics& metrics, std::optional<int64_t> step, bool with_epoch) {
  if (metrics.empty()) return;
  for (const auto& [name, value] : metrics) logged_metrics[name] = value;
  if (loggers.empty()) return;
  MetricList row(metrics.begin(), metrics.end());
  if (!step || with_epoch) row.emplace_back("epoch", static_cast<double>(progress.epoch));
  for (const auto& logger : loggers) logger->log_metrics(row, step.value_or(progress.windows));
}

}  // namespace levin
