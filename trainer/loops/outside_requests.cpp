#include "levin/trainer/loops/outside_requests.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <utility>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/rank_status.h"
#include "levin/core/process/stop_signal.h"
#include "levin/core/storage/staging.h"
#include "levin/trainer/checkpoint_callback.h"
#include "levin/trainer/plan/auto_requeue.h"
#include "levin/trainer/run/ranks.h"
#include "levin/trainer/state/checkpoint.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

constexpr std::chrono::seconds kBetweenLooks(1);

// The fits of this process, which other threads may ask to stop.
std::mutex fits_mutex;
std::vector<OutsideRequests*> fits;

// Where the checkpoint of a stop goes; "" if no callback gives a path.
std::string interrupted_path(const Run& run) {
  return first_checkpoint_path(run.entry.callbacks, run.trainer, "interrupted");
}

// Why nothing can be saved when interrupted_path() is empty.
std::string no_path_text(const Run& run) {
  return checkpoint_callbacks(run.entry.callbacks).empty() ? "there is no checkpoint callback"
                                                           : "no checkpoint callback gives a path for \"interrupted\"";
}

// The logger's folder, else the checkpoints': never the working directory, where a file "stop" may mean something else.
std::string run_folder(const Run& run) {
  if (!run.loggers.empty() && !run.loggers[0]->log_dir().empty()) return run.loggers[0]->log_dir();
  return fs::path(interrupted_path(run)).parent_path().string();
}

std::string signal_name(int signal_number) {
  return signal_number == 0 ? "the file called stop" : stop_signal_name(signal_number);
}

std::string stopped_at(const Run& run) {
  return "epoch " + std::to_string(run.progress.epoch) + ", step " + std::to_string(run.progress.global_step);
}

}  // namespace

OutsideRequests::OutsideRequests(Run& run) : run_(run), stop_after_(stop_after(process_variables())) {
  const std::lock_guard lock(fits_mutex);
  fits.push_back(this);
}

OutsideRequests::~OutsideRequests() {
  const std::lock_guard lock(fits_mutex);
  std::erase(fits, this);
}

bool OutsideRequests::keep_stop(const Run& run, const std::string& reason) {
  const std::lock_guard lock(fits_mutex);
  const auto found = std::find_if(fits.begin(), fits.end(), [&](const auto* fit) { return &fit->run_ == &run; });
  if (found == fits.end() || (*found)->training_thread_ == std::this_thread::get_id()) return false;
  if (!(*found)->stop_is_kept_) (*found)->kept_reason_ = reason;
  (*found)->stop_is_kept_ = true;
  return true;
}

void OutsideRequests::take_stop() {
  if (!stop_is_kept_) return;
  std::string reason;
  {
    const std::lock_guard lock(fits_mutex);
    reason = std::exchange(kept_reason_, "");
    stop_is_kept_ = false;
  }
  run_.trainer.request_stop(reason);
}

bool OutsideRequests::file_is_there(const char* name) {
  const std::string folder = run_folder(run_);
  std::error_code code;
  return !folder.empty() && fs::remove(fs::path(folder) / name, code);  // the rank that removes it handles the request
}

OutsideRequests::Requests OutsideRequests::look() {
  take_stop();
  Requests requests{stop_signal()};
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look_ || run_.strategy->ranks().rank() != 0) return requests;
  next_look_ = now + kBetweenLooks;
  requests.stop_file = file_is_there("stop");
  requests.save_file = file_is_there("save");
  return requests;
}

// With several ranks a signal may reach only one of them, and only the first one looks for files; all must act after
// the same batch. A rank sends a request with the next gradients; requests received with the last gradients are carried
// out.
void OutsideRequests::answer() {
  const Requests requests = look();
  if (!run_.has_peers()) return act(requests);
  const bool save_asked = run_.fit.received_flags.take(RankFlag::save_file);
  const bool stop_asked = run_.fit.received_flags.take(RankFlag::signal);
  act({stop_asked ? requests.signal_number : 0, stop_asked, save_asked});
  if (requests.save_file) run_.fit.flags_to_send.add(RankFlag::save_file);
  if (requests.signal_number != 0 || requests.stop_file) run_.fit.flags_to_send.add(RankFlag::signal);
}

void OutsideRequests::act(const Requests& requests) {
  if (requests.save_file) save();
  if (requests.signal_number != 0 || requests.stop_file) stop(requests.signal_number);
}

void OutsideRequests::stop_if_due(bool inside_epoch) {
  StopAfter due = stop_after_;
  if (inside_epoch) due.epochs.reset();
  if (due.is_reached(run_.progress.epoch, run_.progress.global_step)) stop(0, kStopAfter);
}

std::string OutsideRequests::save_now(const std::string& path) {
  std::string problem;
  try {
    run_.checkpoint_writer.finish();
    CheckpointRequest request{path};
    request.asynchronous = false;
    request.done = [&problem](const std::string& error) { problem = error; };
    request_checkpoint(run_, std::move(request));
    capture_checkpoints(run_);
  } catch (const std::exception& error) {
    problem = error.what();
  }
  return problem;
}

void OutsideRequests::save() {
  const std::string stopped = interrupted_path(run_);
  if (stopped.empty()) {
    Console::instance().warn("a file called save was found, but " + no_path_text(run_) + ". Nothing is saved.");
    return;
  }
  const std::string name = "saved-epoch=" + std::to_string(run_.progress.epoch) +
                           "-step=" + std::to_string(run_.progress.global_step) + ".ckpt";
  const std::string path = (fs::path(stopped).parent_path() / name).string();
  const std::string problem = save_now(path);
  if (!problem.empty()) return Console::instance().error(problem + " Training continues.");
  Console::instance().print("Saved as asked for: " + path + ".");
}

void OutsideRequests::stop(int own_signal, const std::string& cause) {
  const SaveInProgress saving;  // also on ranks that wait for another rank to save
  const int signal_number = agreed_signal(run_.strategy->ranks(), own_signal);
  RankStatus::instance().set_stopped(true);
  std::string text =
      "fit was stopped by " + (cause.empty() ? signal_name(signal_number) : cause) + " in " + stopped_at(run_) + ".";
  const std::string path = interrupted_path(run_);
  const bool trained = run_.progress.total_batches > 0;
  std::string problem;
  if (path.empty()) {
    problem = "Nothing was saved, because " + no_path_text(run_) + ".";
  } else if (!trained || run_.entry.sanity_checking) {
    text += " Nothing was trained yet, so nothing was saved.";
  } else {
    problem = save_now(path);
    if (problem.empty()) text += " Continue with trainer.auto_resume: true or ckpt_path: " + shown_path(path) + ".";
  }
  if (!problem.empty()) text += " " + problem;
  if (asks_for_requeue(run_.options, signal_number)) {
    text += on_rank_zero(run_.strategy->ranks(), [&] {
      if (!problem.empty()) return std::string();  // a job that cannot save would start over forever
      Console::instance().print(text + " Slurm is asked to start the job again.");  // the job may end at any moment
      return " " + requeue_job();
    });
  }
  throw Interrupted(signal_number, text);
}

}  // namespace levin
