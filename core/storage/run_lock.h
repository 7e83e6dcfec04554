// The object run.lock of a folder in a store: one run writes there.
//
// Note [One writer]
// run.lock names the process that writes, with a number that a thread of its own raises all the time. A second run
// waits until it stops growing, or reports who writes. A run that finds another one's name there, or another name in
// run.writer, no longer copies anything. While it cannot read run.lock for so long that another run may have taken it,
// what it is copying is broken off.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "levin/core/options/units.h"
#include "levin/core/storage/object_store.h"

namespace levin {

/// The lock, from the constructor to the destructor, which gives it back. Thread-safe.
class RunLock {
 public:
  /// `hurried`: the same store, which gives up soon. `folder`: where the run's files are, for messages. `broken_off`
  /// becomes true while the run may have lost the lock. Waits while the run that has the lock may still live. Throws
  /// Error naming it if it does, StorageError if the store cannot be reached, and Interrupted if a stop signal arrives.
  RunLock(std::shared_ptr<ObjectStore> store, std::shared_ptr<ObjectStore> hurried, std::string folder,
          Seconds upload_every, std::atomic<bool>& broken_off);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  /// A random name of this run.
  [[nodiscard]] const std::string& id() const { return id_; }
  /// What run.writer said at the start; "" if there is none.
  [[nodiscard]] const std::string& writer() const { return writer_; }

  /// Writes run.lock anew. Throws StorageError if another run has it.
  void keep();
  /// Does nothing if the lock was certainly this run's until now, else keep().
  void confirm();
  /// Returns by whom, as a message; "" if the lock was not taken.
  [[nodiscard]] std::string taken_over() const;
  /// Lets the destructor leave the lock in the store, which does not answer.
  void abandon() { is_abandoned_ = true; }
  /// Ends the thread that raises the number.
  void stop_beating();

 private:
  void take();
  void remove();
  void beat();
  [[nodiscard]] std::string lock_text() const;
  [[nodiscard]] std::string text_of(const std::string& key);
  [[noreturn]] void give_way(const std::string& who);
  [[nodiscard]] std::chrono::nanoseconds sure_since(std::chrono::nanoseconds written) const;

  std::shared_ptr<ObjectStore> store_;
  std::shared_ptr<ObjectStore> hurried_;
  std::string folder_;
  Seconds every_;  // twice between two changes
  std::atomic<bool>& broken_off_;
  std::string id_;
  std::string writer_ = "";
  std::mutex locking_;  // held while run.lock is written; guards the next two
  int64_t beats_ = 0;
  bool has_ended_ = false;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable stopped_;
  bool stop_ = false;
  bool is_cut_off_ = false;                   // another run may have taken the lock
  std::chrono::nanoseconds sure_until_ = {};  // the lock is this run's until then, of CLOCK_BOOTTIME
  std::string taken_over_ = "";               // not empty: by whom
  std::atomic<bool> is_abandoned_ = false;
  std::thread heart_;  // last: it uses the others
};

}  // namespace levin
