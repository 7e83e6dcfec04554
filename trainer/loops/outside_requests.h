// Requests to a fit from outside: to stop (Ctrl-C, SIGTERM, SIGHUP, SIGUSR1, a file called "stop" in the run's
// folder) or to save (a file called "save"). Handled between two batches, on the training thread of every rank. In a
// job of Slurm SIGUSR1 also has the job started again (auto_requeue.h).
#pragma once

#include <chrono>
#include <string>

#include "levin/trainer/plan/stop_after.h"
#include "levin/trainer/run/run.h"

namespace levin {

class OutsideRequests {
 public:
  explicit OutsideRequests(Run& run) : run_(run), stop_after_(stop_after(process_variables())) {}

  /// Between two epochs, or with `inside_epoch` between two batches: stops like a file called stop if LEVIN_STOP_AFTER
  /// says so. All ranks come here together and decide the same.
  void stop_if_due(bool inside_epoch);

  /// With several ranks: asks the others now and waits for them. Every rank calls it.
  void answer_together();

  /// Carries out the requests; costs a few nanoseconds if there are none. A stop saves a checkpoint first and then
  /// throws Interrupted, which names it. Files are looked for once a second, and removed once the request is carried
  /// out.
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
  [[noreturn]] void stop(int own_signal, const std::string& cause = "");
  /// Waits for the disk; returns the error, or "".
  std::string save_now(const std::string& path);

  Run& run_;
  StopAfter stop_after_;
  std::chrono::steady_clock::time_point next_look_ = {};
};

}  // namespace levin
