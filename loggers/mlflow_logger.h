// Sends a run to an MLflow tracking server. Whatever happens to the server, the run neither waits for it nor loses a
// value silently: see loggers/outbox.h. Options as Lightning's MLFlowLogger.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/core/options/units.h"
#include "levin/loggers/logger.h"
#include "levin/loggers/mlflow_client.h"
#include "levin/loggers/outbox.h"

namespace levin {

/// Which checkpoints are sent: none, the ones that are left at the end, or each when it is saved.
enum class LogModel { none, last, all };

template <>
struct EnumNames<LogModel> {
  static constexpr EnumName<LogModel> names[] = {
      {"false", LogModel::none}, {"true", LogModel::last}, {"all", LogModel::all}};
};

/// Options of MLFlowLogger, by the names of Lightning's.
struct MLFlowLoggerOptions {
  std::string experiment_name = "levin_logs";
  std::string run_name = "";
  std::string tracking_uri = "";
  std::map<std::string, std::string> tags = {};
  std::string save_dir = "";
  EnumOption<LogModel> log_model = LogModel::none;
  std::string prefix = "";
  std::string artifact_location = "";
  std::string run_id = "";
  Seconds connect_timeout = Seconds(10);
  Seconds timeout = Seconds(30);
  Seconds finish_timeout = Seconds(60);
  ByteSize max_spill = {int64_t{256} << 20};

  template <class = void>
  static auto fields() {
    using O = MLFlowLoggerOptions;
    return levin::fields(
        field("experiment_name", &O::experiment_name, "experiment on the server; made if it does not exist")
            .not_empty(),
        field("run_name", &O::run_name, "name of the run; empty: the server chooses one"),
        // One with credentials is refused by start(), whose message does not show it.
        field("tracking_uri", &O::tracking_uri,
              "URL of the server, http or https, without user and password; empty: MLFLOW_TRACKING_URI")
            .check_silently(
                [](const std::string& uri) {
                  return uri.empty() || uri.starts_with("http://") || uri.starts_with("https://") ||
                         uri.find('@') != std::string::npos;
                },
                "the http or https URL of an MLflow server (mlflow server starts one on a folder or a database)"),
        field("tags", &O::tags, "tags of the run"),
        field("save_dir", &O::save_dir,
              "folder for what is not yet sent, in mlflow_logs/version_N; empty: the trainer's default_root_dir"),
        field("log_model", &O::log_model,
              "send checkpoints: false, true (those left at the end), all (each when saved)"),
        field("prefix", &O::prefix, "put before the names of metrics, with a dash"),
        field("artifact_location", &O::artifact_location,
              "where the server keeps files of an experiment that it makes"),
        field("run_id", &O::run_id, "continue this run of the server; empty: a new one"),
        field("connect_timeout", &O::connect_timeout, "longest time to connect")
            .check([](Seconds span) { return span.count() > 0; }, "> 0"),
        field("timeout", &O::timeout, "longest time for a request; of a file: without progress")
            .check([](Seconds span) { return span.count() > 0; }, "> 0"),
        field("finish_timeout", &O::finish_timeout, "longest wait for the server at the end of a run")
            .check([](Seconds span) { return span.count() >= 0; }, ">= 0"),
        field("max_spill", &O::max_spill, "most bytes of values that wait on the disk for the server")
            .check([](ByteSize size) { return size.bytes > 0; }, "> 0"));
  }
};

/// A logger that sends metrics, text, tables, files and hyperparameters to an MLflow server. Nothing but finalize()
/// waits for the server: events wait in a file until the server has them.
class MLFlowLogger final : public Logger {
 public:
  using Options = MLFlowLoggerOptions;
  explicit MLFlowLogger(Defaults = {}) : MLFlowLogger(MLFlowLoggerOptions()) {}
  explicit MLFlowLogger(MLFlowLoggerOptions options);
  ~MLFlowLogger() override;
  /// Moves the options alone. Must not be called after start().
  MLFlowLogger(MLFlowLogger&& other) noexcept : MLFlowLogger(std::move(other.options_)) {}

  [[nodiscard]] uint32_t takes() const override;
  /// Throws ConfigError without a server's URL, or with one that holds a password.
  void start(const std::string& default_root_dir, bool resume) override;
  void start_again(const std::string& default_root_dir, bool resume) override;
  void own_folder() override;
  [[nodiscard]] std::string log_dir() const override { return log_dir_; }
  void log_metrics(const MetricList& metrics, const LogPoint& at) override;
  void log_system(const MetricList& measurements, const LogPoint& at) override;
  void log_text(const std::string& name, const std::string& text, const LogPoint& at) override;
  void log_table(const std::string& name, const LogTable& table, const LogPoint& at) override;
  void log_artifact(const std::string& name, const std::string& path, const LogPoint& at) override;
  void log_hyperparams(const ConfigNode& hparams) override;
  [[nodiscard]] std::vector<std::string> earlier_log_dirs() const override;
  /// Returns the run and how many events it has had. load_state_dict removes later ones that were not sent; what the
  /// server has stays, as MLflow cannot remove values.
  [[nodiscard]] State state_dict() const override;
  void load_state_dict(const State& saved) override;
  [[nodiscard]] std::vector<std::string> files() const override;
  void save() override;
  /// Waits up to finish_timeout for the server, and reports what it does not have.
  void finalize(const std::string& status) override;

 private:
  [[nodiscard]] std::string experiment_folder(const std::string& default_root_dir) const;
  void start_in(const std::string& folder);
  void make_outbox();
  void push(const std::string& members, int64_t values);
  void push_metrics(const MetricList& metrics, const LogPoint& at, const std::string& prefix);
  void push_pairs(const char* kind, const std::vector<std::pair<std::string, std::string>>& pairs);
  void push_text(const std::string& to, const std::string& text);
  void push_file(const std::string& to, const std::string& path);
  void push_status(const std::string& status);
  [[nodiscard]] std::string allowed_name(const std::string& name);
  void report(const OutboxReport& report);

  MLFlowLoggerOptions options_;
  MlflowRun run_ = {};
  MlflowCredentials credentials_ = {};
  std::string log_dir_ = "";
  std::shared_ptr<MlflowClient> client_ = nullptr;
  std::shared_ptr<Outbox> outbox_ = nullptr;             // after the client, which its thread uses
  std::map<std::string, std::string> checkpoints_ = {};  // that go to the server at the end: names there, paths
  std::map<std::string, std::string> sent_as_ = {};      // the names at the server, by the run's
  std::set<std::string> taken_ = {};                     // those
  int64_t copies_ = 0;
  bool is_open_ = false;  // the server has been sent, or will be, that the run is active
};

}  // namespace levin
