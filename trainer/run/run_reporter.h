// Keeps run.json up to date, about once a second, between batches.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace levin {

class Logger;
class RunRecorder;
struct Run;
struct RunProgress;

/// A rank's reporter. Rank 0 writes the file; other ranks write their usage next to it.
class RunReporter {
 public:
  RunReporter(std::string folder, int64_t rank);

  /// Returns the logger that copies the run's metrics to the file; null on ranks other than 0.
  [[nodiscard]] std::shared_ptr<Logger> record() const;

  /// Reports that an entry point begins, or continues after a checkpoint was loaded.
  void begin(Run& run, bool continues);
  /// Reads a clock, and writes once a second. Called between two batches.
  void poll(Run& run) {
    if (std::chrono::steady_clock::now() >= next_) report(run, "running", "");
  }
  /// Reports that a checkpoint of the run after these optimizer steps and epochs is on the disk.
  void saved(Run& run, const std::string& path, int64_t step, int64_t epoch);
  /// Reports the end of the entry point: "success", "failed" or "interrupted".
  void end(Run& run, const std::string& status, const std::string& error);

 private:
  void report(Run& run, const std::string& status, const std::string& error);
  void send_status(Run& run, const RunProgress& now);
  [[nodiscard]] RunProgress status_of(const Run& run) const;

  std::string folder_;
  int64_t rank_;
  std::shared_ptr<RunRecorder> record_;
  bool has_begun_ = false;  // in this process
  double started_ = 0;      // seconds since 1970
  double saved_at_ = 0;     // time of the last checkpoint, in seconds since 1970; 0: none yet
  struct Mark {
    double time = 0;
    int64_t batches = 0;
    int64_t samples = 0;
  };
  Mark last_ = {};  // when the status was sent
  std::optional<double> share_at_start_ = std::nullopt;
  std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::time_point::max();
};

}  // namespace levin
