#include "levin/cli/runs/run_list.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <system_error>
#include <thread>

#include "levin/cli/runs/metrics_reader.h"
#include "levin/core/error.h"
#include "levin/core/usable_cores.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

void complete_metrics(RunRecord& record) {
  MetricsReader reader(record.folder);
  reader.update();
  for (const auto& [name, series] : reader.series()) {
    RunMetric metric;
    for (size_t k = 0; k < series.values.size(); ++k) {
      const double value = series.values[k];
      metric.last = value;
      metric.last_step = series.steps[k];
      record.step = std::max(record.step, series.steps[k]);
      if (!(metric.min <= value) && !std::isnan(value)) metric.min = value, metric.min_step = series.steps[k];
      if (!(metric.max >= value) && !std::isnan(value)) metric.max = value, metric.max_step = series.steps[k];
    }
    if (!series.values.empty()) record.metrics.emplace(name, metric);
  }
}

// The first checkpoint callback that monitors something.
void complete_monitor(ListedRun& run) {
  const std::string end = ".init_args.monitor";
  for (const auto& [name, value] : run.options.config) {
    if (!name.starts_with("trainer.callbacks.") || !name.ends_with(end) || value.empty() || value == "null") continue;
    const std::string callback = name.substr(0, name.size() - end.size());
    const std::string* kind = find_option(run.options.config, callback + ".class_path");
    if (kind == nullptr || !kind->ends_with("Checkpoint")) continue;
    run.record.monitor = value;
    const std::string* mode = find_option(run.options.config, callback + ".init_args.mode");
    run.record.monitor_mode = mode == nullptr ? "min" : *mode;
    return;
  }
}

ListedRun read_run(const std::string& folder, const std::string& base) {
  ListedRun run{read_run_record(folder), read_run_options(folder)};
  std::string name = base.empty() ? run.record.name : fs::path(folder).lexically_relative(base).string();
  if (name.empty() || name == ".") name = fs::absolute(folder).lexically_normal().filename().string();
  if (name.empty()) name = fs::absolute(folder).lexically_normal().parent_path().filename().string();
  run.record.name = name;
  try {
    if (run.record.metrics.empty()) complete_metrics(run.record);
  } catch (const Error& error) {
    run.record.unreadable = error.what();
  }
  if (run.record.monitor.empty()) complete_monitor(run);
  return run;
}

bool contains_any(const std::string& name, std::initializer_list<const char*> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const char* part) { return name.find(part) != std::string::npos; });
}

}  // namespace

std::vector<ListedRun> read_runs(const std::vector<std::string>& folders, const std::string& base) {
  std::vector<ListedRun> runs(folders.size());
  std::vector<std::exception_ptr> errors(folders.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t k = next++; k < folders.size(); k = next++) {
      try {
        runs[k] = read_run(folders[k], base);
      } catch (...) {
        errors[k] = std::current_exception();
      }
    }
  };
  const size_t most = std::min<size_t>({static_cast<size_t>(usable_cores().count), 8, folders.size() / 8 + 1});
  std::vector<std::jthread> threads;
  try {
    for (size_t k = 1; k < most; ++k) threads.emplace_back(work);
  } catch (const std::system_error&) {
    // No more threads available: this one does the rest.
  }
  work();
  threads.clear();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return runs;
}

bool lower_is_better(const std::string& metric, const RunRecord& record) {
  if (metric == record.monitor && !record.monitor_mode.empty()) return record.monitor_mode != "max";
  if (contains_any(metric, {"loss", "error", "perplexity", "ppl", "mae", "mse"})) return true;
  return !contains_any(metric, {"acc", "f1", "fbeta", "auroc", "auc", "precision", "recall", "bleu", "rouge", "iou",
                                "dice", "psnr", "ssim", "r2", "score", "reward", "per_second"});
}

std::pair<double, int64_t> best_value(const std::string& metric, const RunRecord& record) {
  const auto found = record.metrics.find(metric);
  if (found == record.metrics.end()) return {kUnknown, -1};
  const RunMetric& values = found->second;
  return lower_is_better(metric, record) ? std::pair(values.min, values.min_step)
                                         : std::pair(values.max, values.max_step);
}

std::string main_metric(const std::vector<ListedRun>& runs) {
  std::map<std::string, size_t> monitored;
  std::string most;
  for (const auto& run : runs) {
    const std::string& name = run.record.monitor;
    if (!name.empty() && ++monitored[name] > monitored[most]) most = name;
  }
  if (!most.empty()) return most;
  for (const char* usual : {"val_loss", "train_loss", "loss", "train_loss_step"}) {
    for (const auto& run : runs) {
      if (run.record.metrics.contains(usual)) return usual;
    }
  }
  return "";
}

}  // namespace levin
