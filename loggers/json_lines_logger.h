// metrics.jsonl: one object of JSON for each event of a run, in lines that any tool can follow.
//
//   {"time":1700000000.25,"step":49,"epoch":0,"metrics":{"train_loss":0.5}}
//
// Instead of "metrics" an object has "system", "final", "text", "table", "histogram", "artifact" or "hparams".
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "levin/core/options/config_node.h"
#include "levin/core/options/fields.h"
#include "levin/loggers/append_file.h"
#include "levin/loggers/log_values.h"
#include "levin/loggers/logger.h"
#include "levin/loggers/logger_folder.h"

namespace levin {

// Note [A writer of JSON lines]
// Rows are appended to the line directly. nlohmann-json needs a tree for each row: a row of six metrics takes 5.5 us
// with it (ordered_json, dump) and 1.8 us here (g++ 12 -O2, Xeon), and rows come as often as training steps. It also
// writes 3 as 3.0, which would change the numbers of files that are continued.

/// Appends the shortest number that reads back unchanged; nan and infinities, which JSON lacks, become the strings
/// "NaN", "Infinity" and "-Infinity", which Python's float() reads.
void append_json(std::string& line, double number);
/// Appends a string in quotes; bytes that are not UTF-8 become U+FFFD.
void append_json(std::string& line, std::string_view text);
void append_json(std::string& line, const MetricList& numbers);
void append_json(std::string& line, std::span<const double> numbers);
void append_json(std::string& line, const LogTable::Cell& cell);
/// Scalars that YAML would read as a number or a bool are written as one.
void append_json(std::string& line, const ConfigNode& node);

/// Options of JSONLinesLogger.
struct JSONLinesLoggerOptions {
  std::string save_dir = "";  // "": the trainer's default_root_dir
  std::string name = "levin_logs";
  std::string version = "";  // "": the first free version_N
  double flush_secs = 1;

  template <class = void>
  static auto fields() {
    using Options = JSONLinesLoggerOptions;
    return levin::fields(
        field("save_dir", &Options::save_dir, "folder for all runs; empty: the trainer's default_root_dir"),
        field("name", &Options::name, "folder of the experiment below save_dir; may be empty"),
        field("version", &Options::version, "folder of the run below name; empty: the first free version_N"),
        field("flush_secs", &Options::flush_secs, "seconds that lines are kept in memory before they are written")
            .min(0.0));
  }
};

/// A logger that writes one JSON object for each event. Lines wait for flush_secs seconds, or until save or finalize.
/// Only the last line of a killed process may be incomplete; it is removed when the run continues. A full disk does not
/// end the run: see Note [Waiting for a disk].
class JSONLinesLogger final : public Logger {
 public:
  using Options = JSONLinesLoggerOptions;
  explicit JSONLinesLogger(Defaults = {}) : JSONLinesLogger(JSONLinesLoggerOptions()) {}
  explicit JSONLinesLogger(JSONLinesLoggerOptions options);
  ~JSONLinesLogger() override;

  /// Everything but images.
  [[nodiscard]] uint32_t takes() const override;
  void start(const std::string& default_root_dir, bool resume) override;
  void start_again(const std::string& default_root_dir, bool resume) override;
  void own_folder() override;
  [[nodiscard]] std::vector<std::string> earlier_log_dirs() const override { return folder_.earlier(); }
  [[nodiscard]] std::string log_dir() const override { return folder_.path(); }

  /// A metric "epoch" becomes the row's epoch. nan and infinities become "NaN", "Infinity" and "-Infinity".
  void log_metrics(const MetricList& metrics, const LogPoint& at) override;
  void log_histogram(const std::string& name, const Histogram& histogram, const LogPoint& at) override;
  void log_text(const std::string& name, const std::string& text, const LogPoint& at) override;
  void log_table(const std::string& name, const LogTable& table, const LogPoint& at) override;
  void log_artifact(const std::string& name, const std::string& path, const LogPoint& at) override;
  void log_system(const MetricList& measurements, const LogPoint& at) override;
  void log_hyperparams(const ConfigNode& hparams) override;
  void log_final_metrics(const MetricList& metrics, const LogPoint& at) override;
  void save() override { file_.write(); }
  void finalize(const std::string& status) override;

  /// Returns the file's length; load_state_dict cuts the file back to it, or throws Error naming path and cause.
  [[nodiscard]] State state_dict() const override;
  void load_state_dict(const State& saved) override;
  [[nodiscard]] std::vector<std::string> files() const override { return {metrics_path()}; }

  [[nodiscard]] std::string metrics_path() const { return file_.path(); }

 private:
  void set_file();
  void put(const std::string& line);

  JSONLinesLoggerOptions options_;
  LoggerFolder folder_;
  AppendFile file_;
  std::string opening_ =
      "";  // the hyperparameters: written before the first value; a run that logs none leaves no file
};

}  // namespace levin
