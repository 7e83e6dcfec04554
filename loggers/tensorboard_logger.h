// Event files for TensorBoard, as Lightning's TensorBoardLogger writes them.
//
// Note [Going back in event files]
// TensorBoard reads all event files of a folder in the order of their names. A checkpoint records the files and their
// lengths; going back to it shortens them to what they held, removes files begun later, and continues in a new file.
// That file begins with a session start at the next step, so that a TensorBoard that has read the removed records drops
// them too. Only files that a TensorBoardLogger of Levin has begun are touched.
#pragma once

#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/loggers/append_file.h"
#include "levin/loggers/event_records.h"
#include "levin/loggers/logger.h"
#include "levin/loggers/logger_folder.h"

namespace levin {

/// Options of TensorBoardLogger, by the names of Lightning's.
struct TensorBoardLoggerOptions {
  std::string save_dir = "";  // "": the trainer's default_root_dir
  std::string name = "levin_logs";
  std::string version = "";  // "": the first free version_N
  std::string sub_dir = "";
  std::string prefix = "";
  bool default_hp_metric = true;
  double flush_secs = 120;
  std::string filename_suffix = "";

  template <class = void>
  static auto fields() {
    using Options = TensorBoardLoggerOptions;
    return levin::fields(
        field("save_dir", &Options::save_dir, "folder for all runs; empty: the trainer's default_root_dir"),
        field("name", &Options::name, "folder of the experiment below save_dir; may be empty"),
        field("version", &Options::version, "folder of the run below name; empty: the first free version_N"),
        field("sub_dir", &Options::sub_dir, "folder of the event files below the run's; empty: the run's itself"),
        field("prefix", &Options::prefix, "put before each name, with a \"-\" between"),
        field("default_hp_metric", &Options::default_hp_metric,
              "a run with hyperparameters and without final metrics gets the metric hp_metric, -1"),
        field("flush_secs", &Options::flush_secs, "seconds that records are kept in memory before they are written")
            .min(0.0),
        field("filename_suffix", &Options::filename_suffix, "end of the names of event files")
            .check([](const std::string& text) { return text.find('/') == std::string::npos; }, "without \"/\""));
  }
};

/// A logger that writes event files. Records are written when the first comes after flush_secs, and by save and
/// finalize. A full disk does not end the run: see Note [Waiting for a disk].
class TensorBoardLogger final : public Logger {
 public:
  using Options = TensorBoardLoggerOptions;
  explicit TensorBoardLogger(Defaults = {}) : TensorBoardLogger(TensorBoardLoggerOptions()) {}
  explicit TensorBoardLogger(TensorBoardLoggerOptions options);
  ~TensorBoardLogger() override;

  [[nodiscard]] uint32_t takes() const override;
  void start(const std::string& default_root_dir, bool resume) override;
  void start_again(const std::string& default_root_dir, bool resume) override;
  void own_folder() override;
  [[nodiscard]] std::vector<std::string> earlier_log_dirs() const override { return folder_.earlier(); }
  /// Returns the run's folder; the event files are in its sub_dir.
  [[nodiscard]] std::string log_dir() const override { return folder_.path(); }

  void log_metrics(const MetricList& metrics, const LogPoint& at) override;
  void log_histogram(const std::string& name, const Histogram& histogram, const LogPoint& at) override;
  void log_image(const std::string& name, const LogImage& image, const LogPoint& at) override;
  void log_text(const std::string& name, const std::string& text, const LogPoint& at) override;
  /// Writes the table as text, in Markdown.
  void log_table(const std::string& name, const LogTable& table, const LogPoint& at) override;
  void log_system(const MetricList& measurements, const LogPoint& at) override;
  void log_hyperparams(const ConfigNode& hparams) override;
  void log_final_metrics(const MetricList& metrics, const LogPoint& at) override;
  void save() override { file_.write(); }
  void finalize(const std::string& status) override;

  /// Returns the files and their lengths. load_state_dict cuts them back (Note [Going back in event files]), or throws
  /// Error naming path and cause.
  [[nodiscard]] State state_dict() const override;
  void load_state_dict(const State& saved) override;
  [[nodiscard]] std::vector<std::string> files() const override;

  /// Returns the path of the current event file; "" before the first value.
  [[nodiscard]] std::string event_path() const { return begun_ ? file_.path() : ""; }

 private:
  struct EarlierFile {
    std::string name;
    int64_t bytes;
  };

  [[nodiscard]] std::string event_folder() const;
  [[nodiscard]] std::vector<EarlierFile> find_event_files();
  [[nodiscard]] std::string new_name();
  void begin_file();
  void put(const std::string& record, const LogPoint& at);
  void put_experiment(const MetricList& metrics, const LogPoint& at);
  [[nodiscard]] std::string tag(const std::string& name) const { return prefix_ + name; }

  TensorBoardLoggerOptions options_;
  std::string prefix_;
  LoggerFolder folder_;
  AppendFile file_;
  bool begun_ = false;  // the current file: a run that logs no value leaves none
  bool looked_ = false;
  std::vector<EarlierFile> earlier_ = {};  // of this run, which the current file continues
  long long newest_ = 0;                   // the largest time in a name
  int64_t last_step_ = -1;
  std::optional<int64_t> restart_at_ = std::nullopt;
  HparamList hparams_ = {};
  std::unordered_set<std::string> scalars_ = {};  // names that have a value
  bool has_experiment_ = false;
  bool has_end_ = false;
};

}  // namespace levin
