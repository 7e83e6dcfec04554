#include "levin/trainer/run/run.h"

namespace levin {

std::string Run::log_dir() const {
  const std::string own = loggers.empty() ? "" : loggers[0]->log_dir();
  return own.empty() ? plan.root_dir : own;
}

void Run::refresh_callback_metrics() {
  if (entry.phase == Phase::idle) return;
  for (const auto& [name, value] : store().monitored(on_step(), entry.phase == Phase::train, entry.failing))
    entry.callback_metrics[name] = value;
  for (const auto& [name, value] : store().shown(on_step(), entry.failing)) entry.bar_metrics[name] = value;
}

void Run::write_metrics(const Metrics& metrics, std::optional<int64_t> step, bool with_epoch) {
  std::vector<std::string> names;
  MetricRow row;
  for (const auto& [name, value] : metrics) {
    names.push_back(name);
    row.values.push_back(value);
  }
  row.names = std::make_shared<const std::vector<std::string>>(std::move(names));
  if (!step || with_epoch) row.epoch = static_cast<double>(progress.epoch);
  write_row(std::move(row), step.value_or(progress.windows));
}

void Run::write_step_metrics() {
  MetricRow row = entry.train_metrics.step_row();
  row.epoch = static_cast<double>(progress.epoch);
  write_row(std::move(row), progress.windows);
}

void Run::write_row(MetricRow row, int64_t step) {
  if (row.values.empty()) return;
  if (writes_logs()) log_stream->log_metrics(row, step);
  logged_metrics.set(std::move(row));
}

void Run::drain_logs() const {
  if (log_stream != nullptr) log_stream->drain();
}

}  // namespace levin
