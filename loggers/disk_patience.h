// What loggers of files do while a disk takes nothing.
//
// Note [Waiting for a disk]
// A failed write does not end a run: what could not be written is kept in memory, within a limit, and written when
// there is room again. After a failure the next writes are skipped: one, three, seven, …, so that a full disk costs
// little. The first failure, the recovery and what was lost are printed.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace levin {

class DiskPatience {
 public:
  /// `logger` begins the messages; `lost` is what the last message counts, e.g. {"row of metrics", "rows of metrics"}.
  DiskPatience(std::string logger, std::string unit, std::pair<std::string, std::string> lost)
      : logger_(std::move(logger)), unit_(std::move(unit)), lost_name_(std::move(lost)) {}

  [[nodiscard]] bool failing() const { return failing_; }
  /// Asked before each write: whether this one is skipped.
  [[nodiscard]] bool skips_write() { return left_out_++ < leave_out_; }
  /// The next write is tried in any case.
  void try_next() { leave_out_ = 0; }
  void add_lost(int64_t count) { lost_ += count; }

  void failed(const std::string& cause);
  /// `count` rows that waited are in the file `path`.
  void wrote(const std::string& path, int64_t count);
  /// The run is over: nothing more can be tried. Prints what was lost, if anything.
  void give_up();

 private:
  std::string logger_;
  std::string unit_;
  std::pair<std::string, std::string> lost_name_;
  bool failing_ = false;
  int64_t left_out_ = 0;  // of the writes after the last failure
  int64_t leave_out_ = 0;
  std::string cause_ = "";  // of the last failure
  int64_t lost_ = 0;        // of this failure
};

}  // namespace levin
