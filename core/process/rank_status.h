// The position of a rank, written to memory shared with its launcher: when a rank dies or hangs, the launcher reports
// it. A few stores; no system call. Written by the training thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace levin {

/// Nanoseconds of the monotonic clock, the same for all processes of a machine; for a signal handler too.
[[nodiscard]] int64_t monotonic_now();

/// One rank's page. Plain memory shared by two processes: a reader may see half an update, or, after a stray write of
/// the rank's program, any bytes. The functions below read no further than the arrays, and give times that have passed.
struct RankPage {
  std::atomic<int64_t> epoch = -1;
  std::atomic<int64_t> batch = -1;
  std::atomic<int64_t> global_step = -1;
  std::atomic<int64_t> moved_at = 0;              // monotonic_now()
  std::atomic<int64_t> failed_at = 0;             // the same; 0: has not failed
  std::atomic<int64_t> reported_by_launcher = 0;  // 1: only the launcher reports the error
  std::atomic<int64_t> saves = 0;                 // the number of saves in progress
  std::atomic<int64_t> saved_at = 0;              // when the last save ended; 0: none has
  std::atomic<int64_t> stop = 0;                  // the signal that asked this rank to stop, whoever sent it; 0: none
  std::atomic<int64_t> stopped = 0;               // 1: has ended because a stop was requested in any way
  std::array<char, 64> phase = {};                // ends with a zero
  std::array<char, 256> waiting = {};             // what for, while it waits for other ranks
  std::array<char, 8192> error = {};

  [[nodiscard]] std::string text() const;          // "in train, epoch 1, batch 12, global step 950", "before training"
  [[nodiscard]] std::string waiting_text() const;  // "": for nothing
  [[nodiscard]] std::string error_text() const;    // "": it has not failed
  /// When it saved last: now while it is saving, 0 if it has not saved. For a signal handler too.
  [[nodiscard]] int64_t last_saved() const;
};

class RankStatus {
 public:
  /// This process's: the launcher's memory if a launcher started it, else its own.
  static RankStatus& instance();

  /// `phase`: "train", "validate", …; a count below 0 is not reported.
  void set_position(const char* phase, int64_t epoch, int64_t batch, int64_t global_step);
  void begin_save() { ++page_->saves; }
  void end_save();
  /// As RankPage::last_saved().
  [[nodiscard]] int64_t last_saved() const { return page_->last_saved(); }
  /// What this rank waits for, as a sentence: "rank 0 of 2 waits for …"; "": for nothing.
  void set_waiting(const std::string& text);
  /// The same in an array that ends with a zero, for a signal handler.
  [[nodiscard]] const char* waiting() const { return page_->waiting.data(); }
  /// A signal has asked this process to stop; for a signal handler. 0: the request no longer applies.
  void note_stop(int signal_number) { page_->stop = signal_number; }
  /// The run ends because it was requested: this is not a failure, and nothing is restarted.
  void set_stopped(bool stopped) { page_->stopped = stopped ? 1 : 0; }
  /// The first one is kept: what follows is its consequence. Also written to the file that torchrun names in
  /// TORCHELASTIC_ERROR_FILE, from which it takes the cause of a failed job.
  void set_error(const std::string& text);
  /// Leaves the report of this error to the launcher, which reports it once for all ranks. Returns false if no launcher
  /// has the full text; this process must report it then.
  [[nodiscard]] bool leave_to_launcher(const std::string& text);

 private:
  RankStatus();
  RankPage own_ = {};
  RankPage* page_ = &own_;
};

/// Ends this process with status 1 and an error that is reported as any other: where the thread that trains cannot
/// throw it, because it waits for what will not happen. Any thread.
[[noreturn]] void end_rank(const std::string& text);

/// During its lifetime this rank waits for others: named in its last message if a stop is requested and the wait does
/// not end.
class RankWait {
 public:
  explicit RankWait(const std::string& text) : outer_(RankStatus::instance().waiting()) {
    RankStatus::instance().set_waiting(text);
  }
  ~RankWait() { RankStatus::instance().set_waiting(outer_); }
  RankWait(const RankWait&) = delete;
  RankWait& operator=(const RankWait&) = delete;

 private:
  std::string outer_;
};

/// During its lifetime this rank is saving, or waits for a rank that is, on any thread. The grace time after a stop
/// request, here and in the launcher, counts from the end of the last save: a save is not cut, and the run has as long
/// after it to end as it has without one.
class SaveInProgress {
 public:
  SaveInProgress() { RankStatus::instance().begin_save(); }
  ~SaveInProgress() { RankStatus::instance().end_save(); }
  SaveInProgress(const SaveInProgress&) = delete;
  SaveInProgress& operator=(const SaveInProgress&) = delete;
};

/// Memory for `count` pages that children inherit. Launcher only; throws Error where the system has none.
class RankPages {
 public:
  explicit RankPages(int64_t count);
  ~RankPages();
  RankPages(const RankPages&) = delete;
  RankPages& operator=(const RankPages&) = delete;

  /// Empty pages, for a new start.
  void clear();
  [[nodiscard]] const RankPage& operator[](int64_t local_rank) const { return pages_[local_rank]; }
  /// The file descriptor of the memory, passed to children in the variable named kVariable.
  [[nodiscard]] int descriptor() const { return descriptor_; }
  static constexpr const char* kVariable = "LEVIN_STATUS_FD";

 private:
  int64_t count_;
  int descriptor_ = -1;
  RankPage* pages_ = nullptr;
};

}  // namespace levin
