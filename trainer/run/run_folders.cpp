#include "levin/trainer/run/run_folders.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <optional>
#include <utility>

#include "levin/core/files/files.h"
#include "levin/core/process/log.h"
#include "levin/core/storage/open_store.h"
#include "levin/core/storage/remote_folder.h"
#include "levin/core/storage/staging.h"
#include "levin/loggers/logger.h"
#include "levin/loggers/logger_folder.h"
#include "levin/loggers/quiet_logger.h"
#include "levin/trainer/run/ranks.h"
#include "levin/trainer/run/run_log.h"
#include "levin/trainer/run/run_reporter.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

// A process that was just killed may still be releasing its memory; locks of a lost machine on a network file system
// remain until the server's lease expires.
std::chrono::milliseconds patience(const Run& run) {
  return run.started_again ? std::chrono::minutes(2) : std::chrono::seconds(10);
}

bool is_below(const fs::path& path, const fs::path& folder) {
  const fs::path below = path.lexically_relative(folder);
  return !below.empty() && *below.begin() != "..";
}

// The files that a run writes when it begins, its log, and the lock.
bool is_note(const std::string& name) {
  return name == "config.yaml" || name == "hparams.yaml" || name == "slurm_job" || name == "run.lock" ||
         name == "run.json" || (name.starts_with(".rank") && name.ends_with(".json")) || log::is_log_file(name);
}

bool is_empty_folder(const fs::path& path) {
  std::error_code code;
  return fs::is_directory(fs::symlink_status(path, code)) && names_in(path.string()).empty();
}

// The names in a folder without results; unset if it has some. The metrics of an evaluation are printed; `printed`:
// they are no result that the folder is needed for.
std::optional<std::vector<std::string>> names_of_unused(const fs::path& folder, bool printed) {
  std::vector<std::string> names = names_in(folder.string());
  const bool is_unused = std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return is_note(name) || (printed && name == "metrics.csv") ||
           (name == "checkpoints" && is_empty_folder(folder / name));
  });
  return is_unused ? std::optional(names) : std::nullopt;
}

// Otherwise it has the default, which nobody asked for.
bool has_chosen_logger(const Run& run) {
  return !run.options.logger.loggers.empty();
}

// Every rank reports of itself; rank 0 has the loggers.
void start_log_stream(Run& run, const std::string& log_dir) {
  if (!log_dir.empty()) run.reporter = std::make_shared<RunReporter>(log_dir, run.strategy->ranks().rank());
  if (run.strategy->ranks().rank() != 0) return;
  std::vector<std::shared_ptr<Logger>> all = run.loggers;
  if (run.reporter != nullptr) all.push_back(run.reporter->record());
  run.log_stream = std::make_unique<LogStream>(std::move(all));
}

}  // namespace

void claim_folders(Run& run, const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    const fs::path wanted = fs::absolute(folder).lexically_normal();
    const bool has_it = std::any_of(run.entry.folder_locks.begin(), run.entry.folder_locks.end(),
                                    [&](const auto& lock) { return is_below(wanted, lock->folder()); });
    if (has_it) continue;
    run.entry.folder_locks.push_back(std::make_unique<FolderLock>(wanted.string(), patience(run)));
    const std::string url = staged_url(wanted.string());
    if (url.empty()) continue;
    run.entry.remote_folders.push_back(std::make_shared<RemoteFolder>(
        wanted.string(), [url](const FetchLimits& limits) { return open_store(url, limits); },
        RemoteFolderOptions{.upload_every = run.options.upload_every}));
  }
}

void release_folders(EntryPoint& entry) {
  log::close(entry.log_file);
  entry.remote_folders.clear();
  entry.folder_locks.clear();
}

void upload_soon(const EntryPoint& entry) {
  for (const auto& folder : entry.remote_folders) folder->upload_soon();
}

void finish_uploads(Run& run) {
  std::exception_ptr first;
  for (const auto& folder : std::exchange(run.entry.remote_folders, {})) {
    if (!run.has_trained && names_of_unused(folder->folder(), !has_chosen_logger(run))) continue;
    try {
      folder->finish();
    } catch (const Error&) {
      if (first == nullptr) first = std::current_exception();
    }
  }
  if (first != nullptr) std::rethrow_exception(first);
}

void remove_unused_folders(Run& run) {
  if (run.has_trained) return;
  for (const std::string& folder : std::exchange(run.new_folders, {})) {
    std::error_code code;  // files that cannot be removed stay
    try {
      if (!fs::exists(folder, code)) continue;
      {
        const FolderLock lock(fs::absolute(folder).lexically_normal().string(), std::chrono::milliseconds(0));
        const auto names = lock.is_held() ? names_of_unused(folder, !has_chosen_logger(run)) : std::nullopt;
        if (!names) continue;
        for (const std::string& name : *names) {
          if (name != "run.lock") fs::remove(fs::path(folder) / name, code);
        }
      }
      fs::remove(folder, code);  // fails if the folder is no longer empty
    } catch (const std::exception&) {
      continue;  // another run uses it now
    }
  }
}

void start_loggers(Run& run) {
  const bool resume = run.auto_resume && run.entry.stage == Stage::fit;
  const std::string log_dir = on_rank_zero(run.strategy->ranks(), [&] {
    const LoggersOfOneRun together;
    for (const auto& logger : run.loggers) {
      if (!run.loggers_started) {
        run.started_again ? logger->start_again(run.plan.root_dir, resume) : logger->start(run.plan.root_dir, resume);
        if (is_empty_folder(logger->log_dir())) run.new_folders.push_back(logger->log_dir());
      }
      if (logger->log_dir().empty()) continue;
      claim_folders(run, {logger->log_dir()});
      logger->own_folder();
    }
    if (!run.loggers.empty()) make_folder(run.log_dir());  // not every logger has a folder of its own
    return run.loggers.empty() ? std::string() : run.loggers[0]->log_dir();
  });
  for (const auto& logger : run.loggers) {
    if (auto* quiet = dynamic_cast<QuietLogger*>(logger.get())) quiet->set_log_dir(log_dir);
  }
  if (!std::exchange(run.loggers_started, true) && !run.loggers.empty()) start_log_stream(run, log_dir);
  start_run_log(run, log_dir);
}

}  // namespace levin
