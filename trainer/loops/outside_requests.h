// What is asked of a fit from outside: to stop (Ctrl-C, SIGTERM, SIGHUP, SIGUSR1, a file called "stop" in the run's
// folder) or to save (a file called "save"). Answered between two batches, on the training thread of every rank. In a
// job of Slurm SIGUSR1 also has the job started again (auto_requeue.h).
#pragma once

#include <chrono>
#include <string>

#include "levin/trainer/run/run.h"

namespace levin {

class OutsideRequests {
 public:
  explicit OutsideRequests(Run& run) : run_(run) {}

  /// Several ranks: asks the others now and waits for them. Every rank.
  void answer_together();

  /// Does what was asked for; costs a few nanoseconds if nothing was. A stop saves a checkpoint first and then throws
  /// Interrupted, which names it. Files are looked for once a second and removed when they are answered.
  void answer();

 private:
  [[nodiscard]] bool file_is_there(const char* name);
  struct Requests {
    int signal_number = 0;
    bool stop_file = false;
    bool save_file = false;
  };
  [[nodiscard]] Requests look();
  void act(bool save_asked, bool stop_asked, int signal_number);
  void save();
  /// Every rank, after the same batch; `own_signal`: what this one has received.
  [[noreturn]] void stop(int own_signal);
  /// Waits for the disk; returns what went wrong, "" if nothing did.
  std::string save_now(const std::string& path);

  Run& run_;
  std::chrono::steady_clock::time_point next_look_ = {};
};

}  // namespace levin
