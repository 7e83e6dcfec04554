#include "levin/cli/runs/run_list.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <set>
#include <string_view>
#include <system_error>
#include <thread>
#include <unordered_map>

#include "levin/cli/runs/metrics_reader.h"
#include "levin/core/options/error.h"
#include "levin/core/process/threads.h"
#include "levin/yaml/yaml_file.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

bool is_list_of_scalars(const ConfigNode& node) {
  return node.is_list() &&
         std::all_of(node.items.begin(), node.items.end(), [](const ConfigNode& item) { return item.is_scalar(); });
}

void flatten(const ConfigNode& node, const std::string& name, FlatOptions& into) {
  if (node.is_map() && !node.entries.empty()) {
    for (const auto& entry : node.entries) flatten(entry.value, join_path(name, entry.key), into);
  } else if (is_list_of_scalars(node)) {
    std::string text = "[";
    for (const auto& item : node.items) text += (text.size() > 1 ? ", " : "") + item.text;
    into.emplace_back(name, text + "]");
  } else if (node.is_list()) {
    for (size_t k = 0; k < node.items.size(); ++k) flatten(node.items[k], join_path(name, std::to_string(k)), into);
  } else {
    into.emplace_back(name, node.is_scalar() ? node.text : node.is_map() ? "{}" : "null");
  }
}

FlatOptions read_options_file(const fs::path& path, RunOptions& options) {
  std::error_code code;
  if (!fs::exists(path, code)) return {};
  Problems problems;
  const ConfigNode node = read_yaml_file(path.string(), problems);
  for (const auto& line : problems.lines()) options.problems.push_back(line);
  FlatOptions flat;
  if (node.is_map() && !node.entries.empty()) flatten(node, "", flat);
  return flat;
}

std::string_view last_part(std::string_view name) {
  return name.substr(name.rfind('.') + 1);
}

bool same_values(const OptionRow& a, const OptionRow& b) {
  for (size_t run = 0; run < a.values.size(); ++run) {
    const std::string* one = a.values[run];
    const std::string* other = b.values[run];
    if ((one == nullptr) != (other == nullptr) || (one != nullptr && *one != *other)) return false;
  }
  return true;
}

class OptionTable {
 public:
  explicit OptionTable(size_t runs) : runs_(runs) {}

  // An option that the first runs lack follows the option that precedes it in its own file.
  void add(size_t run, const FlatOptions& options) {
    size_t at = 0;
    for (const auto& [name, value] : options) {
      const auto [found, is_new] = places_.emplace(name, rows.size());
      if (is_new) rows.push_back({name, std::vector<const std::string*>(runs_, nullptr), false});
      at = found->second;
      rows[at].values[run] = &value;
    }
  }

  std::vector<OptionRow> rows = {};

 private:
  size_t runs_;
  std::unordered_map<std::string, size_t> places_ = {};
};

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

RunOptions read_run_options(const std::string& folder) {
  RunOptions options;
  options.hparams = read_options_file(fs::path(folder) / "hparams.yaml", options);
  options.config = read_options_file(fs::path(folder) / "config.yaml", options);
  return options;
}

FlatOptions flattened(const ConfigNode& node) {
  FlatOptions flat;
  if (!node.is_map() || !node.entries.empty()) flatten(node, "", flat);
  return flat;
}

const std::string* find_option(const FlatOptions& options, const std::string& name) {
  const auto found =
      std::find_if(options.begin(), options.end(), [&](const auto& option) { return option.first == name; });
  return found == options.end() ? nullptr : &found->second;
}

std::vector<OptionRow> compare_options(const std::vector<const RunOptions*>& runs) {
  OptionTable hparams(runs.size());
  OptionTable config(runs.size());
  for (size_t run = 0; run < runs.size(); ++run) {
    hparams.add(run, runs[run]->hparams);
    config.add(run, runs[run]->config);
  }
  std::map<std::string_view, const OptionRow*> known;
  for (const OptionRow& row : hparams.rows) known.emplace(row.name, &row);
  std::vector<OptionRow> rows = hparams.rows;
  for (OptionRow& row : config.rows) {
    const auto hparam = known.find(last_part(row.name));
    const bool is_module = row.name.starts_with("model.") || row.name.starts_with("data.");
    if (is_module && hparam != known.end() && same_values(*hparam->second, row)) continue;
    rows.push_back(std::move(row));
  }
  for (OptionRow& row : rows) {
    const std::string* first = row.values.empty() ? nullptr : row.values[0];
    row.differs = std::any_of(row.values.begin(), row.values.end(), [first](const std::string* value) {
      return (value == nullptr) != (first == nullptr) || (value != nullptr && *value != *first);
    });
  }
  return rows;
}

std::vector<std::string> short_option_names(const std::vector<std::string>& names) {
  std::vector<std::string> shorter;
  std::map<std::string_view, int> uses;
  for (const auto& name : names) {
    for (size_t at = name.size(); at != std::string::npos && at > 0;) {
      at = name.rfind('.', at - 1);
      ++uses[std::string_view(name).substr(at == std::string::npos ? 0 : at + 1)];
    }
  }
  for (const auto& name : names) {
    std::string_view best = name;
    for (size_t at = name.size(); at != std::string::npos && at > 0;) {
      at = name.rfind('.', at - 1);
      const std::string_view end = std::string_view(name).substr(at == std::string::npos ? 0 : at + 1);
      const bool is_index = !end.empty() && end.find_first_not_of("0123456789") == std::string_view::npos;
      if (end.empty() || is_index || uses[end] > 1) continue;
      best = end;
      break;
    }
    shorter.emplace_back(best);
  }
  return shorter;
}

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
