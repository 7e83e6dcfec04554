// Where a run's numbers go. Called on rank 0 only, from the training thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "levin/core/config_node.h"

namespace levin {

/// Values by name, in the order they were logged.
using MetricList = std::vector<std::pair<std::string, double>>;

class Logger {
 public:
  virtual ~Logger() = default;

  static const char* registry_name() { return "logger"; }

  /// Called once before anything is logged; `default_root_dir` is where files go if the logger has no folder of its
  /// own.
  virtual void start(const std::string& default_root_dir) = 0;

  /// The folder of this run ("" if the logger keeps no files); checkpoints go below the first logger's.
  [[nodiscard]] virtual std::string log_dir() const { return ""; }

  /// One row. `step` counts completed accumulation windows from 0.
  virtual void log_metrics(const MetricList& metrics, int64_t step) = 0;

  virtual void log_hyperparams(const ConfigNode& /*hparams*/) {}

  /// Writes what is still in memory.
  virtual void save() {}

  /// The run is over: "success", "failed" or "interrupted".
  virtual void finalize(const std::string& /*status*/) { save(); }
};

}  // namespace levin
