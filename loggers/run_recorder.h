// run.json in a run's folder: what the run is, how far it is and what it has reached, for `levin runs`, `levin report`
// and `levin top`. docs/run_folder.md describes the file.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "levin/loggers/logger.h"

namespace levin {

/// What one rank reports of itself.
struct RankUsage {
  int64_t rank = 0;
  std::string host = "";
  int64_t pid = 0;
  std::string stage = "";
  int64_t memory_bytes = 0;       // of the process
  int64_t peak_memory_bytes = 0;  // since it started
};

/// The progress of a run. Times are in seconds; points in time count from 1970.
struct RunProgress {
  std::string command = "fit";
  std::string status = "running";  // then "success", "failed" or "interrupted"
  std::string error = "";
  std::string stop_reason = "";  // of a fit that has ended without an error
  std::string strategy = "";
  std::string precision = "";
  std::string device = "";
  int64_t world_size = 1;
  double started = 0;  // of this session
  double now = 0;
  int64_t epoch = 0;
  int64_t max_epochs = -1;  // -1: no limit
  int64_t step = 0;
  int64_t max_steps = -1;
  int64_t windows = 0;  // the loggers' step
  int64_t total_batches = 0;
  int64_t samples = 0;                            // of this rank, in this session
  std::optional<double> progress = std::nullopt;  // 0 to 1; unset: unlimited
  std::optional<double> progress_at_start = std::nullopt;
  double trained_seconds = 0;  // of this session
  std::string monitor = "";
  std::string monitor_mode = "";
  std::optional<double> best_score = std::nullopt;
  std::string best_path = "";
  int64_t skipped_steps = 0;
  int64_t nonfinite_losses = 0;
  std::vector<std::pair<std::string, double>> time_split = {};  // seconds of this session by part
  RankUsage own = {};                                           // of rank 0
};

/// A checkpoint that was written.
struct SavedCheckpoint {
  std::string path = "";
  int64_t step = 0;
  int64_t epoch = 0;
  double time = 0;
  std::optional<double> score = std::nullopt;
};

/// Returns the command of the run in a folder, by its run.json: "fit", "test", …; "" if it is not known. Fetches the
/// file of a folder in a store. Throws StorageError.
[[nodiscard]] std::string recorded_command(const std::string& folder);

/// A logger of every run that follows the metrics and writes the file when it is given a status. The file of an earlier
/// session is continued. Failed writes are reported once and do not end a run.
class RunRecorder final : public Logger {
 public:
  explicit RunRecorder(std::string folder) : folder_(std::move(folder)) {}

  void start(const std::string& /*default_root_dir*/, bool /*resume*/) override {}
  [[nodiscard]] uint32_t takes() const override { return static_cast<uint32_t>(LogKind::scalars); }
  void log_metrics(const MetricList& metrics, const LogPoint& at) override;

  /// Starts a session: reads what earlier sessions have written. `continues`: the run is resumed; false: it starts anew
  /// in this folder.
  void begin(const RunProgress& status, bool continues);
  void add_checkpoint(const SavedCheckpoint& checkpoint);
  /// Replaces the file. An evaluation in the folder of a fit leaves the fit's record alone; one after that fit in the
  /// same process adds, at its end, the metrics that the fit has not.
  void write(const RunProgress& status);

  /// Where a rank other than 0 leaves its usage, which the next write() includes.
  [[nodiscard]] static std::string usage_path(const std::string& folder, int64_t rank);
  static void write_usage(const std::string& folder, const RankUsage& usage);

 private:
  using Json = nlohmann::ordered_json;

  struct Seen {
    double last = 0;
    int64_t last_step = 0;
    double min = 0;
    int64_t min_step = 0;
    double max = 0;
    int64_t max_step = 0;
  };

  void read_earlier(const RunProgress& status);
  void add_evaluation(const RunProgress& status);
  void replace(const Json& content);
  void note_clock(const RunProgress& status);
  void note_rate(const RunProgress& status);
  [[nodiscard]] Json content(const RunProgress& status) const;
  [[nodiscard]] Json metrics_node() const;
  void forget_removed_checkpoints();
  [[nodiscard]] std::string below_folder(const std::string& path) const;
  [[nodiscard]] Json ranks_node(const RunProgress& status) const;

  std::string folder_;
  bool writes_ = true;                    // false: an evaluation in the folder of a fit, whose record stays
  bool fits_here_ = false;                // the fit of that folder was in this process
  std::set<std::string> evaluated_ = {};  // names that its evaluations have added to the record
  bool failing_ = false;
  double started_ = 0;         // of the first session
  double trained_before_ = 0;  // seconds of the sessions before
  std::map<std::string, double> split_before_ = {};
  int64_t first_step_ = 0;         // of this session
  Json sessions_ = Json::array();  // before this one
  Json checkpoints_ = Json::array();
  std::map<std::string, Seen> metrics_ = {};
  std::vector<std::pair<int64_t, double>> clock_ = {};  // (loggers' step, seconds of training)
  double clock_spacing_ = 0;                            // seconds between its points
  // The latest writes, for rates: (time, batches, samples).
  struct Mark {
    double time = 0;
    int64_t batches = 0;
    int64_t samples = 0;
  };
  std::vector<Mark> marks_ = {};
};

}  // namespace levin
