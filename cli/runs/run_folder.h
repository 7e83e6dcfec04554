// What a run's folder says about the run: run.json, which the trainer replaces about once a second.
//
//   for (const auto& folder : find_run_folders("levin_logs").folders) table.push_back(read_run_record(folder));
//
// Any key of the file may be missing, and nothing in it is trusted. Folders of runs that have no run.json (metrics.csv
// and hparams.yaml alone) are read too: their times are the modification times of these files.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace levin {

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

enum class RunStatus { unknown, running, success, failed, interrupted, killed };

/// "running"; "" for unknown.
[[nodiscard]] const char* status_word(RunStatus status);

/// Last, lowest and highest value of a metric, and the logging steps at which they were measured.
struct RunMetric {
  double last = kUnknown;
  double min = kUnknown;
  double max = kUnknown;
  int64_t last_step = -1;
  int64_t min_step = -1;
  int64_t max_step = -1;
};

/// One per start: a run that was resumed has several.
struct RunSession {
  double started = kUnknown;
  double ended = kUnknown;
  int64_t first_step = 0;
  std::string status = "";
  int64_t count = 1;  // more: sessions that were joined into this one
};

/// A checkpoint of the run that exists.
struct RunCheckpoint {
  std::string path = "";  // below the run's folder, or absolute
  int64_t step = -1;
  int64_t epoch = -1;
  double time = kUnknown;
  double score = kUnknown;
};

/// The process of one rank.
struct RunRank {
  int64_t rank = 0;
  std::string host = "";
  int64_t pid = 0;
  double memory_bytes = kUnknown;
  double peak_memory_bytes = kUnknown;
  std::string stage = "";
};

/// Times are in seconds since 1970. What is missing is kUnknown, -1 or "".
struct RunRecord {
  std::string folder = "";
  std::string name = "";        // the folder as the user would name it
  bool has_record = false;      // there is a run.json that could be read
  std::string unreadable = "";  // why run.json could not be read
  std::string command = "";
  std::vector<std::string> argv = {};
  RunStatus status = RunStatus::unknown;
  std::string error = "";
  std::string stop_reason = "";  // why a fit ended that did not fail
  double started = kUnknown;
  double updated = kUnknown;
  double ended = kUnknown;
  std::vector<RunSession> sessions = {};
  std::string host = "";
  int64_t pid = 0;
  std::string version = "";
  std::string strategy = "";
  std::string precision = "";
  std::string device = "";
  int64_t world_size = 1;
  int64_t epoch = -1;
  int64_t max_epochs = -1;
  int64_t step = -1;
  int64_t max_steps = -1;
  int64_t total_batches = -1;
  double progress = kUnknown;  // 0 to 1
  double remaining_seconds = kUnknown;
  std::map<std::string, RunMetric> metrics = {};
  std::string monitor = "";       // the metric that chooses checkpoints
  std::string monitor_mode = "";  // "min" or "max"
  double monitor_best = kUnknown;
  std::string best_path = "";
  std::vector<RunCheckpoint> checkpoints = {};
  int64_t skipped_steps = 0;
  int64_t nonfinite_losses = 0;
  double batches_per_second = kUnknown;
  double samples_per_second = kUnknown;
  std::vector<std::pair<std::string, double>> time_split = {};  // seconds, in the file's order
  std::vector<std::pair<int64_t, double>> clock = {};           // step, seconds of training since the start; ascending
  std::vector<RunRank> ranks = {};

  [[nodiscard]] int64_t session_count() const;
  /// Seconds from start to end over all sessions, without the time between them; kUnknown where no time is known.
  [[nodiscard]] double duration() const;
};

/// The result of a search for run folders.
struct FoundRuns {
  std::vector<std::string> folders = {};     // sorted; numbers in names count as numbers
  std::vector<std::string> unreadable = {};  // "path: why"
};

/// The folders of runs at or below `folder`: folders with run.json, or with metrics.csv and hparams.yaml. Links are not
/// followed. Throws Error if `folder` does not exist.
[[nodiscard]] FoundRuns find_run_folders(const std::string& folder);

/// Without folders that an earlier path already names.
[[nodiscard]] std::vector<std::string> distinct_folders(const std::vector<std::string>& folders);

/// Whether `folder` itself is one.
[[nodiscard]] bool is_run_folder(const std::string& folder);

/// Never throws for what is in the files: see RunRecord::unreadable. A run whose record says running and whose process
/// is gone has the status killed, and ended when it last wrote to run.json or metrics.csv; so has its session.
[[nodiscard]] RunRecord read_run_record(const std::string& folder);

/// Whether `a` sorts before `b`, where numbers within names count as numbers: version_2 before version_10.
[[nodiscard]] bool natural_less(const std::string& a, const std::string& b);

}  // namespace levin
