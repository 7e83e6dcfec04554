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
  if (!writes_logs()) return;
  MetricList row;
  row.reserve(metrics.size() + 1);
  row.assign(metrics.begin(), metrics.end());
  if (!step || with_epoch) row.emplace_back("epoch", static_cast<double>(progress.epoch));
  log_stream->log_metrics(std::move(row), step.value_or(progress.windows));
}

void Run::drain_logs() const {
  if (log_stream != nullptr) log_stream->drain();
}

}  // namespace levin
