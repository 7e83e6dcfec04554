#include "levin/callbacks/on_exception_checkpoint.h"

#include <filesystem>

#include "levin/checkpoint/sharded_checkpoint.h"
#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/storage/open_store.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace fs = std::filesystem;

OnExceptionCheckpoint::OnExceptionCheckpoint(OnExceptionCheckpointOptions options)
    : options_(checked(std::move(options), "OnExceptionCheckpointOptions")) {
  check_joined_name("OnExceptionCheckpointOptions.filename", options_.filename, "dirpath");
  if (is_remote(options_.dirpath)) {
    throw ConfigError("OnExceptionCheckpointOptions.dirpath: \"" + cut_text(options_.dirpath) +
                      "\" is a URL. Name a folder of this machine: after an exception the checkpoint must not wait for "
                      "a network.");
  }
  // Absolute, so that a change of the working folder changes nothing.
  options_.dirpath = absolute_path(options_.dirpath);
}

std::string OnExceptionCheckpoint::ckpt_path() const {
  return (fs::path(options_.dirpath) / (options_.filename + ".ckpt")).string();
}

void OnExceptionCheckpoint::setup(Trainer&, LightningModule&, Stage) {
  training_ = false;
}

// Lightning saves on every exception; here only during training, because before it there is nothing to lose, and a file
// of an earlier failure would be overwritten with less.
void OnExceptionCheckpoint::on_exception(Trainer& trainer, LightningModule&, const std::exception& error) {
  if (!std::exchange(training_, false) || trainer.plan().fast_dev_run) return;
  const std::string path = ckpt_path();
  try {
    if (trainer.global_rank() == 0) make_folder(fs::path(path).parent_path().string());
    trainer.save_checkpoint(path);
  } catch (const std::exception& failure) {
    Console::instance().error(std::string("OnExceptionCheckpoint: ") + failure.what() +
                              " The state is not saved. It was to be saved because of: " + error.what());
    return;
  }
  if (trainer.global_rank() == 0) {
    Console::instance().print("OnExceptionCheckpoint: saved " + path + ". Give it as ckpt_path to continue.");
  }
}

void OnExceptionCheckpoint::on_fit_end(Trainer& trainer, LightningModule&) {
  if (trainer.global_rank() != 0 || trainer.plan().fast_dev_run) return;
  const std::string problem = remove_checkpoint(ckpt_path());
  if (problem.empty()) return;
  Console::instance().warn("OnExceptionCheckpoint: cannot remove " + ckpt_path() + ": " + problem + ".");
}

std::string OnExceptionCheckpoint::checkpoint_path(Trainer&, const std::string& which) {
  if (which == "interrupted") return (fs::path(ckpt_path()).parent_path() / "interrupted.ckpt").string();
  std::error_code code;
  return which == "last" && fs::exists(ckpt_path(), code) ? ckpt_path() : "";
}

}  // namespace levin
