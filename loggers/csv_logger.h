// metrics.csv and hparams.yaml in <save_dir>/<name>/version_N, as Lightning's CSVLogger writes them.
#pragma once

#include <string>

#include "levin/core/fields.h"
#include "levin/loggers/disk_patience.h"
#include "levin/loggers/logger.h"
#include "levin/loggers/logger_folder.h"
#include "levin/loggers/metrics_file.h"

namespace levin {

struct CSVLoggerOptions {
  std::string save_dir = "";  // "": the trainer's default_root_dir
  std::string name = "levin_logs";
  std::string version = "";  // "": the first free version_N
  int64_t flush_logs_every_n_steps = 100;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("save_dir", &CSVLoggerOptions::save_dir, "folder for all runs; empty: the trainer's default_root_dir"),
        field("name", &CSVLoggerOptions::name, "folder of the experiment below save_dir; may be empty"),
        field("version", &CSVLoggerOptions::version, "folder of the run below name; empty: the first free version_N"),
        field("flush_logs_every_n_steps", &CSVLoggerOptions::flush_logs_every_n_steps,
              "rows kept in memory before they are written")
            .min(1));
  }
};

/// A full disk does not end a run: rows are kept in memory, written when there is room again, and counted if they are
/// lost. Rows are appended; when a new column appears the file is rewritten with the columns sorted by name.
class CSVLogger final : public Logger {
 public:
  using Options = CSVLoggerOptions;
  explicit CSVLogger(Defaults = {}) : CSVLogger(CSVLoggerOptions()) {}
  explicit CSVLogger(CSVLoggerOptions options);
  ~CSVLogger() override;

  void start(const std::string& default_root_dir, bool resume) override;
  void start_again(const std::string& default_root_dir, bool resume) override;
  void own_folder() override;
  [[nodiscard]] std::vector<std::string> earlier_log_dirs() const override { return folder_.earlier(); }
  [[nodiscard]] std::string log_dir() const override { return folder_.path(); }
  /// Throws Error where a name holds a line end or another control character.
  void log_metrics(const MetricList& metrics, const LogPoint& at) override;
  void log_hyperparams(const ConfigNode& hparams) override;
  void save() override;
  void finalize(const std::string& status) override;
  /// Rows and columns; load_state cuts metrics.csv back to them.
  [[nodiscard]] State state() const override;
  void load_state(const State& saved) override;
  [[nodiscard]] std::vector<std::string> files() const override { return {metrics_path()}; }

  [[nodiscard]] std::string metrics_path() const { return file_.path(); }

 private:
  void set_file();
  void write(bool all);

  CSVLoggerOptions options_;
  LoggerFolder folder_;
  MetricsFile file_ = {};
  DiskPatience patience_ = {"CSVLogger", "row", {"row of metrics", "rows of metrics"}};
};

}  // namespace levin
