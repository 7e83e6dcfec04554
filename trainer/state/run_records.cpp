#include "levin/trainer/state/run_records.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <string_view>
#include <utility>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/run/ranks.h"
#include "levin/trainer/state/checkpoint_search.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

// Options that determine how long, where and how visibly a run trains, and what it does besides.
constexpr std::array kMayChange{
    "ckpt_path",
    "plugins",  // where libraries are; what they hold is not compared either
    "test_after_fit",
    "weights",  // a checkpoint takes precedence
    "trainer.accelerator",
    "trainer.auto_requeue",
    "trainer.auto_resume",
    "trainer.default_root_dir",
    "trainer.detect_anomaly",
    "trainer.devices",
    "trainer.enable_model_summary",
    "trainer.enable_progress_bar",
    "trainer.limit_predict_batches",
    "trainer.limit_test_batches",
    "trainer.log.format",
    "trainer.log.level",
    "trainer.log.max_bytes",
    "trainer.log.max_files",
    "trainer.log_every_n_steps",
    "trainer.max_epochs",
    "trainer.max_restarts",
    "trainer.max_steps",
    "trainer.max_time",
    "trainer.min_epochs",
    "trainer.min_steps",
    "trainer.num_nodes",
    "trainer.num_threads",
    "trainer.oversubscribe",
    "trainer.profiler",
    "trainer.stop_grace",
    "trainer.strategy",
    "trainer.upload_every",
};
// Options with these names may change at any depth.
constexpr std::array kMayChangeAnywhere{"flush_logs_every_n_steps", "num_workers"};

using Leaves = std::vector<std::pair<std::string, std::string>>;  // path, value

void collect_leaves(const ConfigNode& node, const std::string& path, Leaves& leaves) {
  for (const auto& entry : node.entries) {
    collect_leaves(entry.value, path.empty() ? entry.key : path + "." + entry.key, leaves);
  }
  for (size_t k = 0; k < node.items.size(); ++k) {
    collect_leaves(node.items[k], path + "[" + std::to_string(k) + "]", leaves);
  }
  if (node.is_scalar()) leaves.emplace_back(path, cut_text(node.text));
  if (node.is_null()) leaves.emplace_back(path, "null");
  if (node.is_list() && node.items.empty()) leaves.emplace_back(path, "[]");
  if (node.is_map() && node.entries.empty()) leaves.emplace_back(path, "{}");
}

constexpr const char* kNotSet = "not set";

std::string config_path(const Run& run) {
  return (fs::path(run.trainer.log_dir()) / "config.yaml").string();
}

bool is_there(const fs::path& path) {
  std::error_code code;
  return fs::exists(path, code);
}

bool writes_records(const Run& run) {
  return !run.loggers.empty() && run.strategy->ranks().rank() == 0;
}

void write_config(Run& run) {
  if (run.kept_config && writes_records(run)) write_file_durably(config_path(run), to_yaml(run.kept_config->config));
}

void write_hyper_parameters(Run& run) {
  if (run.entry.module->hparams().is_null()) return;
  if (run.log_stream == nullptr) return;
  run.log_stream->log(
      LogKind::hyperparameters, run.progress.windows, 0,
      [hparams = run.entry.module->hparams()](Logger& logger, const LogPoint&) { logger.log_hyperparams(hparams); });
  run.drain_logs();  // a folder that cannot be written is an error before the first step
}

std::vector<ChangedOption> changes_of_config(const Run& run) {
  try {
    return changed_options(run.kept_config->read(config_path(run)), run.kept_config->config);
  } catch (const Error& error) {
    Console::instance().warn("auto_resume: the options of the earlier run cannot be read, and are not compared: " +
                             std::string(error.what()));
  }
  return {};
}

std::vector<ChangedOption> find_changes(const Run& run, const StartingPoint& start, bool own) {
  if (run.kept_config && writes_records(run)) {
    return is_there(config_path(run)) ? changes_of_config(run) : std::vector<ChangedOption>();
  }
  const ConfigNode* before = start.checkpoint.values.find("hyper_parameters");
  const ConfigNode& now = run.entry.module->hparams();
  if (!own || before == nullptr || before->is_null() || now.is_null()) return {};
  return changed_options(*before, now, "hyper_parameters");
}

void judge(const Run& run, const StartingPoint& start, const std::vector<ChangedOption>& changes) {
  const bool all_are_welcome = std::holds_alternative<std::string>(run.options.auto_resume);
  std::vector<std::string> refused;
  for (const ChangedOption& change : changes) {
    const std::string text = cut_text(change.path, 200) + " was " + change.before + " and is " + change.now + " now.";
    if (may_change(change.path) || all_are_welcome) {
      Console::instance().print("auto_resume: " + text);
    } else {
      refused.push_back(text);
    }
  }
  if (refused.empty()) return;
  refused.push_back(
      "auto_resume: the run of " + start.path +
      " was started with different options, so it is not continued, and nothing in its folder was changed. "
      "Restore the old values, continue with the new ones by trainer.auto_resume: warn, or begin a new run "
      "with trainer.auto_resume: false or another trainer.default_root_dir.");
  throw ConfigError(std::move(refused));
}

}  // namespace

std::vector<ChangedOption> changed_options(const ConfigNode& before, const ConfigNode& now, const std::string& root) {
  Leaves old_leaves;
  Leaves new_leaves;
  collect_leaves(before, root, old_leaves);
  collect_leaves(now, root, new_leaves);
  std::map<std::string, std::string> old_values(old_leaves.begin(), old_leaves.end());
  std::vector<ChangedOption> changes;
  for (const auto& [path, value] : new_leaves) {
    const auto found = old_values.find(path);
    const std::string was = found == old_values.end() ? kNotSet : found->second;
    if (was != value) changes.push_back({path, was, value});
    if (found != old_values.end()) old_values.erase(found);
  }
  for (const auto& [path, value] : old_leaves) {
    if (old_values.contains(path)) changes.push_back({path, value, kNotSet});
  }
  return changes;
}

bool may_change(const std::string& path) {
  const size_t dot = path.find_last_of('.');
  const std::string name = dot == std::string::npos ? path : path.substr(dot + 1);
  if (std::find(kMayChangeAnywhere.begin(), kMayChangeAnywhere.end(), name) != kMayChangeAnywhere.end()) return true;
  return std::any_of(kMayChange.begin(), kMayChange.end(), [&](std::string_view one) {
    return path.starts_with(one) && (path.size() == one.size() || path[one.size()] == '.' || path[one.size()] == '[');
  });
}

void check_changed_options(Run& run, const StartingPoint& start, bool own) {
  if (!run.auto_resume || run.entry.stage != Stage::fit || start.path.empty()) return;
  (void)on_rank_zero(run.strategy->ranks(), [&] {
    judge(run, start, find_changes(run, start, own));
    return std::string();
  });
}

// Evaluations do not replace the record of a fit: it describes how the folder's checkpoints were made.
void begin_records(Run& run) {
  const fs::path hparams = fs::path(config_path(run)).replace_filename("hparams.yaml");
  run.entry.records_due = writes_records(run) && (is_there(config_path(run)) || is_there(hparams));
  if (!run.entry.records_due) write_config(run);
}

void record_hyper_parameters(Run& run) {
  if (!run.entry.records_due) write_hyper_parameters(run);
}

void renew_records(Run& run) {
  if (!std::exchange(run.entry.records_due, false)) return;
  write_config(run);
  write_hyper_parameters(run);
}

}  // namespace levin
