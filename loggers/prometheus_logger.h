// Writes the newest values of a run to a file for node_exporter's textfile collector, from which Prometheus scrapes
// them.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/core/options/units.h"
#include "levin/loggers/flush_timer.h"
#include "levin/loggers/logger.h"

namespace levin {

/// A gauge: its name, its HELP text, and its samples with their labels.
struct PrometheusGauge {
  using Labels = std::vector<std::pair<std::string, std::string>>;
  std::string name = "";
  std::string help = "";
  std::vector<std::pair<Labels, double>> samples = {};
};

/// Returns the gauges in Prometheus' text format, with HELP and TYPE lines; gauges without samples are left out.
[[nodiscard]] std::string prometheus_text(const std::vector<PrometheusGauge>& gauges);

/// Options of PrometheusLogger.
struct PrometheusLoggerOptions {
  std::string path = "";
  std::string name = "";
  Seconds every = Seconds(15);
  bool remove_at_end = false;

  template <class = void>
  static auto fields() {
    using O = PrometheusLoggerOptions;
    return levin::fields(
        field("path", &O::path,
              "the file, in the folder of node_exporter's --collector.textfile.directory and with the ending .prom; "
              "empty: levin.prom in the trainer's default_root_dir")
            .check([](const std::string& path) { return path.empty() || path.ends_with(".prom"); },
                   "a name that ends in .prom, as node_exporter reads no others"),
        field("name", &O::name, "label \"run\" of all values; empty: the name of the trainer's default_root_dir"),
        field("every", &O::every, "shortest time between two versions of the file")
            .check([](Seconds span) { return span.count() > 0; }, "> 0"),
        field("remove_at_end", &O::remove_at_end,
              "remove the file when the run ends; otherwise it stays, with the run's status"));
  }
};

/// A logger that keeps a file of gauges up to date. The file is replaced by renaming, so that a reader never sees half
/// of it. If it cannot be written, it logs one warning and tries again with the next version.
class PrometheusLogger final : public Logger {
 public:
  using Options = PrometheusLoggerOptions;
  explicit PrometheusLogger(Defaults = {}) : PrometheusLogger(PrometheusLoggerOptions()) {}
  explicit PrometheusLogger(PrometheusLoggerOptions options);
  ~PrometheusLogger() override;
  /// Moves the options alone. Must not be called after start().
  PrometheusLogger(PrometheusLogger&& other) noexcept : PrometheusLogger(std::move(other.options_)) {}

  [[nodiscard]] uint32_t takes() const override { return LogKind::scalars | LogKind::system | LogKind::status; }
  void start(const std::string& default_root_dir, bool resume) override;
  void own_folder() override;
  void log_metrics(const MetricList& metrics, const LogPoint& at) override;
  void log_system(const MetricList& measurements, const LogPoint& at) override;
  void log_status(const MetricList& measurements, const LogPoint& at) override;
  void finalize(const std::string& status) override;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  void changed();
  void write_file();
  [[nodiscard]] std::vector<PrometheusGauge> gauges() const;

  PrometheusLoggerOptions options_;
  std::string path_ = "";
  std::string run_ = "";
  std::mutex mutex_;  // the timer's thread writes
  std::map<std::string, double> metrics_ = {};
  std::map<std::string, double> measurements_ = {};  // of the machine
  std::map<std::string, double> progress_ = {};      // how far the run is
  double step_ = -1;                                 // < 0: nothing was logged
  double logged_ = 0;
  std::string status_ = "running";
  bool is_stale_ = false;  // the file does not have the newest values
  bool failing_ = false;
  FlushTimer timer_;  // last: its thread uses all of this
};

}  // namespace levin
