// The interface of loggers, which receive what a run logs. On rank 0 only.
//
// Note [Threads of a logger]
// The thread of a LogStream calls log_… and save, in the order in which values were logged, so they may take their
// time. The training thread calls the rest, and save before a checkpoint, but never while that thread is inside the
// logger: a logger needs no lock. A logger that talks to a server must not wait for it in log_…, because the other
// loggers would wait too.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "levin/core/options/config_node.h"
#include "levin/core/state.h"
#include "levin/loggers/log_values.h"

namespace levin {

/// Kinds of what a run can log, as bits.
enum class LogKind : uint32_t {
  scalars = 1,
  histograms = 2,
  images = 4,
  text = 8,
  tables = 16,
  hyperparameters = 32,
  artifacts = 64,
  system = 128,
  status = 256,
};

[[nodiscard]] constexpr uint32_t operator|(LogKind a, LogKind b) {
  return static_cast<uint32_t>(a) | static_cast<uint32_t>(b);
}
[[nodiscard]] constexpr uint32_t operator|(uint32_t a, LogKind b) {
  return a | static_cast<uint32_t>(b);
}

/// The base of loggers. A subclass implements start() and log_metrics(), and overrides the log_… functions of further
/// kinds that takes() lists.
class Logger : public Stateful {
 public:
  /// Options refuse a logger that is passed by name: the run would use a copy.
  static constexpr bool kOptionsMayCopy = false;

  static const char* registry_name() { return "logger"; }

  /// Returns the kinds that this logger takes; others are not given to it, and a warning names kinds that no logger
  /// takes. System measurements go to log_metrics of a logger that takes scalars unless it takes LogKind::system.
  [[nodiscard]] virtual uint32_t takes() const { return LogKind::scalars | LogKind::hyperparameters; }
  [[nodiscard]] bool takes(LogKind kind) const { return (takes() & static_cast<uint32_t>(kind)) != 0; }

  /// Called once before anything is logged; `default_root_dir` is where files go if the logger has no folder of its
  /// own.
  /// `resume`: continue in the folder of the newest run, if there is one. That run may still be active: nothing is
  /// written into an existing folder before own_folder() is called.
  virtual void start(const std::string& default_root_dir, bool resume) = 0;
  /// Called instead of start for a job that its cluster has restarted: continues in the folder that the job had
  /// started, if there is one.
  virtual void start_again(const std::string& default_root_dir, bool resume) { start(default_root_dir, resume); }

  /// Called once before each entry point, when no other run is active in log_dir() and none can begin there: from here
  /// on the logger may write into it.
  virtual void own_folder() {}

  /// Returns the folder of this run ("" if the logger keeps no files); checkpoints go below the first logger's.
  [[nodiscard]] virtual std::string log_dir() const { return ""; }

  /// Logs one row of scalars.
  virtual void log_metrics(const MetricList& metrics, const LogPoint& at) = 0;
  virtual void log_histogram(const std::string& /*name*/, const Histogram& /*histogram*/, const LogPoint& /*at*/) {}
  virtual void log_image(const std::string& /*name*/, const LogImage& /*image*/, const LogPoint& /*at*/) {}
  /// Logs `text`, which is Markdown.
  virtual void log_text(const std::string& /*name*/, const std::string& /*text*/, const LogPoint& /*at*/) {}
  virtual void log_table(const std::string& /*name*/, const LogTable& /*table*/, const LogPoint& /*at*/) {}
  /// Logs a file of the run, e.g. a checkpoint or the configuration. The file may be removed later: a logger that sends
  /// it later keeps its own copy, or reports that the file is missing.
  virtual void log_artifact(const std::string& /*name*/, const std::string& /*path*/, const LogPoint& /*at*/) {}
  /// Logs measurements of the machine: memory, load, temperature.
  virtual void log_system(const MetricList& /*measurements*/, const LogPoint& /*at*/) {}
  /// Called about once a second with the progress of the run. "epoch", "global_step", "skipped_steps",
  /// "batches_per_second", "samples_per_second", "progress" (0 to 1), and "checkpoint_time" (seconds since 1970), as
  /// far as known.
  virtual void log_status(const MetricList& /*measurements*/, const LogPoint& /*at*/) {}
  /// Logs the run's options; `hparams` is a map. Called once per entry point, before the first row.
  virtual void log_hyperparams(const ConfigNode& /*hparams*/) {}
  /// Logs the last value of every metric, before finalize of a fit: what a table of runs compares.
  virtual void log_final_metrics(const MetricList& /*metrics*/, const LogPoint& /*at*/) {}

  /// Returns the folders of earlier runs of the same experiment, newest first.
  [[nodiscard]] virtual std::vector<std::string> earlier_log_dirs() const { return {}; }

  /// Returns the position of the log, for a checkpoint; save() was called before.
  [[nodiscard]] State state_dict() const override { return Stateful::state_dict(); }
  /// Removes what was logged after the checkpoint with `saved`; an empty state: everything.
  void load_state_dict(const State& saved) override { Stateful::load_state_dict(saved); }
  /// Returns the files that state_dict() refers to.
  [[nodiscard]] virtual std::vector<std::string> files() const { return {}; }

  /// Writes rows that are still in memory.
  virtual void save() {}

  /// Called when the run is over, with "success", "failed" or "interrupted".
  virtual void finalize(const std::string& /*status*/) { save(); }
};

// The names of the counters that stand next to the metrics in every logger's rows.

/// Returns whether no metric may have the name: loggers, file names of checkpoints and monitors would show the counter
/// instead.
[[nodiscard]] inline bool is_counter_name(std::string_view name) {
  return name == "epoch" || name == "step";
}

}  // namespace levin
