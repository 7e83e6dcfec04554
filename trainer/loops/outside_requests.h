// Requests to a fit from outside: to stop (Ctrl-C, SIGTERM, SIGHUP, SIGUSR1, a file called "stop" in the run's
// folder) or to save (a file called "save"). Handled between two batches, on the training thread of every rank. In a
// job of Slurm SIGUSR1 also has the job started again (auto_requeue.h). Trainer::request_stop of another thread is
// handled at the same place.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "levin/trainer/plan/stop_after.h"
#include "levin/trainer/run/run.h"

namespace levin {

class OutsideRequests {
 public:
  explicit OutsideRequests(Run& run);
  ~OutsideRequests();
  OutsideRequests(const OutsideRequests&) = delete;
  OutsideRequests& operator=(const OutsideRequests&) = delete;

  /// Keeps a stop that another thread than the training thread requests of the run's fit, until it is handled between
  /// two batches. False if this is the training thread, or if no fit runs: then the caller may change the run.
  [[nodiscard]] static bool keep_stop(const Run& run, const std::string& reason);

  /// Between two epochs, or with `inside_epoch` between two batches: stops like a file called stop if LEVIN_STOP_AFTER
  /// logs a warning. All ranks call it together and decide the same.
  void stop_if_due(bool inside_epoch);

  /// What this rank was asked for; the files since the last call.
  struct Requests {
    int signal_number = 0;
    bool stop_file = false;
    bool save_file = false;
  };
  [[nodiscard]] Requests look();
  /// Carries them out. With several ranks, every rank calls it after the same batch, and all stop or none does.
  void act(const Requests& requests);

  /// Carries out the requests; costs a few nanoseconds if there are none. A stop saves a checkpoint first and then
  /// throws Interrupted, which names it. Files are looked for once a second, and removed once the request is carried
  /// out.
  void answer();

 private:
  [[nodiscard]] bool file_is_there(const char* name);
  void take_stop();
  void save();
  /// Every rank, after the same batch; `own_signal`: what this one has received.
  [[noreturn]] void stop(int own_signal, const std::string& cause = "");
  /// Waits for the disk; returns the error, or "".
  std::string save_now(const std::string& path);

  Run& run_;
  StopAfter stop_after_;
  std::thread::id training_thread_ = std::this_thread::get_id();
  std::atomic<bool> stop_is_kept_ = false;
  std::string kept_reason_ = "";
  std::chrono::steady_clock::time_point next_look_ = {};
};

}  // namespace levin
