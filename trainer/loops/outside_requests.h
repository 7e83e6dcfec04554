// Requests to a fit from outside: to stop (Ctrl-C, SIGTERM, SIGHUP, SIGUSR1, a file called "stop" in the run's folder)
// or to save (a file called "save"). They are handled between two batches, on the training thread of every rank. In a
// Slurm job SIGUSR1 also requeues the job (auto_requeue.h). Trainer::request_stop from a different thread is handled at
// the same point.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "levin/trainer/plan/stop_after.h"
#include "levin/trainer/run/run.h"

namespace levin {

/// The requests to one fit. Only keep_stop may be called from any thread.
class OutsideRequests {
 public:
  explicit OutsideRequests(Run& run);
  ~OutsideRequests();
  OutsideRequests(const OutsideRequests&) = delete;
  OutsideRequests& operator=(const OutsideRequests&) = delete;

  /// Keeps a stop that a thread other than the training thread requests, until it is handled between two batches.
  /// Returns false on the training thread, and if no fit runs: then the caller may change the run. Thread-safe.
  [[nodiscard]] static bool keep_stop(const Run& run, const std::string& reason);

  /// Stops, as for a file called stop, if the limit of LEVIN_STOP_AFTER is reached. Called between two epochs, or with
  /// `inside_epoch` between two batches, by all ranks together; they decide the same.
  void stop_if_due(bool inside_epoch);

  /// The requests to this rank; files count once.
  struct Requests {
    int signal_number = 0;
    bool stop_file = false;
    bool save_file = false;
  };
  /// Returns the present requests. Files are looked for at most once a second, on rank 0, and removed.
  [[nodiscard]] Requests look();
  /// Carries out requests. With several ranks, every rank calls it after the same batch, and all stop or none does.
  void act(const Requests& requests);

  /// Looks for requests and carries them out, with several ranks at a batch at which all know; costs a few nanoseconds
  /// if there are none. A stop saves a checkpoint first and then throws Interrupted, which names it.
  void answer();

 private:
  [[nodiscard]] bool file_is_there(const char* name);
  void take_stop();
  void save();
  /// Stops on every rank, after the same batch; `own_signal`: the signal that this rank has received, 0 if none.
  [[noreturn]] void stop(int own_signal, const std::string& cause = "");
  /// Saves and waits for the disk; returns the error, or "".
  std::string save_now(const std::string& path);

  Run& run_;
  StopAfter stop_after_;
  std::thread::id training_thread_ = std::this_thread::get_id();
  std::atomic<bool> stop_is_kept_ = false;
  std::string kept_reason_ = "";
  std::chrono::steady_clock::time_point next_look_ = {};
};

}  // namespace levin
