// The interface of loggers, which receive a run's numbers. Called on rank 0 only, from the training thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "levin/core/config_node.h"
#include "levin/core/state.h"

namespace levin {

/// Values by name, in the order they were logged.
using MetricList = std::vector<std::pair<std::string, double>>;

class Logger {
 public:
  virtual ~Logger() = default;

  static const char* registry_name() { return "logger"; }

  /// Called once before anything is logged; `default_root_dir` is where files go if the logger has no folder of its
  /// own.
  /// `resume`: continue in the folder of the newest run, if there is one. That run may still be active: nothing is
  /// written into an existing folder before own_folder() is called.
  virtual void start(const std::string& default_root_dir, bool resume) = 0;
  /// The same for a job that its cluster has started again: continues in the folder that the job had begun, if there is
  /// one.
  virtual void start_again(const std::string& default_root_dir, bool resume) { start(default_root_dir, resume); }

  /// Called once before each entry point, when no other run is active in log_dir() and none can begin there: from here
  /// on the logger may write into it.
  virtual void own_folder() {}

  /// The folder of this run ("" if the logger keeps no files); checkpoints go below the first logger's.
  [[nodiscard]] virtual std::string log_dir() const { return ""; }

  /// One row. `step` counts completed accumulation windows from 0.
  virtual void log_metrics(const MetricList& metrics, int64_t step) = 0;

  /// The folders of earlier runs beside this one's, newest first.
  [[nodiscard]] virtual std::vector<std::string> earlier_log_dirs() const { return {}; }

  virtual void log_hyperparams(const ConfigNode& /*hparams*/) {}

  /// The position of the log, for a checkpoint; save() was called before.
  [[nodiscard]] virtual State state() const { return {}; }
  /// Removes what was logged after the checkpoint with `saved`; an empty state: everything.
  virtual void load_state(const State& /*saved*/) {}
  /// The files that state() refers to.
  [[nodiscard]] virtual std::vector<std::string> files() const { return {}; }

  /// Writes rows that are still in memory.
  virtual void save() {}

  /// The run is over: "success", "failed" or "interrupted".
  virtual void finalize(const std::string& /*status*/) { save(); }
};

}  // namespace levin
