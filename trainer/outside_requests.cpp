#include "levin/trainer/outside_requests.h"

#include <csignal>
#include <cstring>
#include <filesystem>

#include "levin/core/console.h"
#include "levin/core/stop_signal.h"
#include "levin/trainer/checkpoint.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

constexpr std::chrono::seconds kBetweenLooks(1);

// Where the checkpoint of a stop goes; "" without a checkpoint callback.
std::string interrupted_path(const Run& run) {
  for (const auto& callback : run.callbacks) {
    if (callback->is_checkpoint()) return callback->checkpoint_path(run.trainer, "interrupted");
  }
  return "";
}

// The logger's folder, else the checkpoints': never the working directory, where a "stop" may mean something else.
std::string run_folder(const Run& run) {
  if (!run.loggers.empty() && !run.loggers[0]->log_dir().empty()) return run.loggers[0]->log_dir();
  return fs::path(interrupted_path(run)).parent_path().string();
}

std::string signal_name(int signal_number) {
  if (signal_number == SIGINT) return "Ctrl-C";
  if (signal_number == SIGTERM) return "SIGTERM";
  if (signal_number == SIGUSR1) return "SIGUSR1";
  return signal_number == 0 ? "the file called stop" : strsignal(signal_number);
}

std::string place_text(const Run& run) {
  return "epoch " + std::to_string(run.progress.epoch) + ", step " + std::to_string(run.progress.global_step);
}

}  // namespace

bool OutsideRequests::file_is_there(const char* name) {
  const std::string folder = run_folder(run_);
  std::error_code code;
  return !folder.empty() && fs::remove(fs::path(folder) / name, code);  // whoever removes it has been asked
}

void OutsideRequests::answer() {
  int signal_number = stop_signal();
  const auto now = std::chrono::steady_clock::now();
  bool stop_file = false;
  bool save_file = false;
  if (signal_number == 0 && now < next_look_ && run_.strategy->world_size() == 1) return;
  if (now >= next_look_ && run_.strategy->rank() == 0) {
    next_look_ = now + kBetweenLooks;
    stop_file = file_is_there("stop");
    save_file = file_is_there("save");
  }
  // A signal may reach one rank only, and files are seen by the first: all must answer in the same batch.
  if (run_.strategy->any(save_file)) save();
  if (run_.strategy->any(signal_number != 0 || stop_file)) stop(signal_number);
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
    Console::instance().warn("a file called save was found, but the run has no checkpoint callback. Nothing is saved.");
    return;
  }
  const std::string name = "saved-epoch=" + std::to_string(run_.progress.epoch) +
                           "-step=" + std::to_string(run_.progress.global_step) + ".ckpt";
  const std::string path = (fs::path(stopped).parent_path() / name).string();
  const std::string problem = save_now(path);
  if (!problem.empty()) return Console::instance().error(problem + " Training goes on.");
  Console::instance().print("Saved as asked for: " + path + ".");
}

void OutsideRequests::stop(int signal_number) {
  std::string text = "fit was stopped by " + signal_name(signal_number) + " in " + place_text(run_) + ".";
  const std::string path = interrupted_path(run_);
  const bool trained = run_.progress.total_batches > 0;
  if (path.empty()) {
    text += " There is no checkpoint callback, so nothing was saved.";
  } else if (!trained || run_.sanity_checking) {
    text += " Nothing was trained yet, so nothing was saved.";
  } else if (const std::string problem = save_now(path); !problem.empty()) {
    text += " " + problem;
  } else {
    text += " Continue with trainer.auto_resume: true or ckpt_path: " + path + ".";
  }
  throw Interrupted(signal_number, text);
}

}  // namespace levin
