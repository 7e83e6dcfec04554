#include "levin/trainer/run/run.h"

namespace levin {

namespace {

// A metric that is logged for steps and epochs has the name of its steps ("loss_step") too.
int64_t batches_when_logged(const Run& run, std::string_view name) {
  auto found = run.entry.logged_at.find(name);
  if (found == run.entry.logged_at.end() && name.ends_with("_step"))
    found = run.entry.logged_at.find(name.substr(0, name.size() - std::string_view("_step").size()));
  return found == run.entry.logged_at.end() ? run.batches_done() : found->second;
}

}  // namespace

std::vector<LightningOptimizer>& Fit::optimizers() const {
  static std::vector<LightningOptimizer> none;
  return engine != nullptr ? engine->optimizers() : none;
}

std::string Run::log_dir() const {
  const std::string own = loggers.empty() ? "" : loggers[0]->log_dir();
  return own.empty() ? plan.root_dir : own;
}

void Run::refresh_callback_metrics() {
  if (entry.phase == Phase::idle) return;
  const bool is_step = entry.phase == Phase::train && on_step();
  for (const auto& [name, value] : store().monitored(on_step(), entry.phase == Phase::train, entry.failing)) {
    set_callback_metric(name, value, is_step ? batches_when_logged(*this, name) : batches_done());
  }
  for (const auto& [name, value] : store().shown(on_step(), entry.failing)) entry.bar_metrics[name] = value;
}

void Run::set_callback_metric(const std::string& name, double value, int64_t batches) {
  entry.callback_metrics[name] = value;
  entry.measured_at[name] = batches;
}

void Run::note_logged(std::string_view name) {
  const auto found = entry.logged_at.find(name);
  if (found != entry.logged_at.end()) {
    found->second = batches_done();
  } else {
    entry.logged_at.emplace(name, batches_done());
  }
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
