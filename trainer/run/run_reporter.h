// Keeps run.json up to date: about once a second, between batches. Every rank has one; the others leave their usage
// next to rank 0's file.
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

class RunReporter {
 public:
  RunReporter(std::string folder, int64_t rank);

  /// What follows the run's metrics: one more logger of its stream. Null on other ranks than 0.
  [[nodiscard]] std::shared_ptr<Logger> record() const;

  /// An entry point begins, or continues after a checkpoint was loaded.
  void begin(Run& run, bool continues);
  /// Between two batches: reads a clock, and once a second writes.
  void poll(Run& run) {
    if (std::chrono::steady_clock::now() >= next_) report(run, "running", "");
  }
  /// A checkpoint of the run after these optimizer steps and epochs is on the disk.
  void saved(Run& run, const std::string& path, int64_t step, int64_t epoch);
  /// The entry point is over: "success", "failed" or "interrupted".
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
  double saved_at_ = 0;     // the last checkpoint, the same; 0: none yet
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
