// A queue of events in a file, which survives the process: lines of JSON in outbox.jsonl, and how far they have been
// delivered, in outbox.position.
//
// Note [What a kill leaves]
// A line is written by one system call, so a killed process has lost no event whose push() has returned; an incomplete
// line (a full disk, a power failure) is removed when the file is opened again. The position is written after the
// receiver has answered: events delivered between the two are delivered again, never left out.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

namespace levin {

/// One event: a line of JSON (an object with "n", its number, and "v", the values it stands for).
struct SpilledEvent {
  int64_t number = 0;
  int64_t values = 0;
  std::string line = "";
};

/// How many values a folder's queue could not deliver; kept over restarts.
struct SpillCounts {
  int64_t dropped = 0;  // no room for them
  int64_t refused = 0;  // the receiver refused them
};

/// A queue of events in a file, which survives a restart. Not thread-safe.
class SpillFile {
 public:
  /// Reads what is in the folder. At most `most_bytes` wait in the file. Throws Error naming a file that cannot be
  /// read.
  SpillFile(const std::string& folder, int64_t most_bytes);
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

  /// Appends an event. `members`: the inside of its JSON object after "n" and "v", e.g. `"k":"tags","i":[]`. False if
  /// the queue is full: its values are counted as dropped. Never throws: events that the disk does not take wait in
  /// memory.
  bool push(const std::string& members, int64_t values);
  /// Returns why the last write failed; "" if it succeeded.
  [[nodiscard]] const std::string& problem() const { return problem_; }

  /// Returns the next events to deliver, limited by number and bytes, but at least one if any is waiting.
  [[nodiscard]] std::vector<SpilledEvent> next(size_t max_events, size_t max_bytes) const;
  /// Events up to this number need not be delivered again. `refused`: values among them that were refused.
  void acknowledge(int64_t number, int64_t refused);

  /// Drops undelivered events after this number for which `is_cut` returns true; returns their number.
  template <class Predicate>
  int64_t cut(int64_t number, Predicate is_cut) {
    return replace_tail([&](const SpilledEvent& event) { return event.number > number && is_cut(event); });
  }

  [[nodiscard]] int64_t last_number() const { return last_number_; }
  [[nodiscard]] int64_t waiting_events() const { return static_cast<int64_t>(index_.size()); }
  [[nodiscard]] int64_t waiting_values() const { return waiting_values_; }
  [[nodiscard]] SpillCounts counts() const { return counts_; }

  /// Writes what waits in memory, and makes the file last through a power failure. Best effort.
  void sync();

 private:
  // Where an undelivered event is: in the file, or in `memory_` if the disk did not take it.
  struct Place {
    int64_t number = 0;
    int64_t values = 0;
    int64_t offset = -1;
    size_t size = 0;
  };

  void read_position();
  void read_lines();
  void open_file();
  bool append(const std::string& line);
  void flush_memory();
  void write_position();
  void forget_delivered();
  [[nodiscard]] std::string line_of(size_t index, size_t& in_memory) const;
  int64_t replace_tail(const std::function<bool(const SpilledEvent&)>& is_dropped);

  std::string path_;
  std::string position_path_;
  int64_t most_bytes_;
  int fd_ = -1;
  int position_fd_ = -1;
  int64_t size_ = 0;           // of the file
  int64_t waiting_bytes_ = 0;  // of undelivered lines
  int64_t waiting_values_ = 0;
  int64_t last_number_ = 0;
  int64_t acknowledged_ = 0;
  SpillCounts counts_ = {};
  std::deque<Place> index_ = {};         // of undelivered events, in order
  std::deque<std::string> memory_ = {};  // lines of the last ones of index_
  std::string problem_ = "";
};

}  // namespace levin
