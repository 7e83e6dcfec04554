#include "levin/trainer/run/run_folders.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "levin/loggers/quiet_logger.h"
#include "levin/trainer/run/ranks.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

// A process that was killed a moment ago still gives its memory back; a machine that is gone keeps its locks on a
// network file system until the server's lease is over.
std::chrono::milliseconds patience(const Run& run) {
  return run.started_again ? std::chrono::minutes(2) : std::chrono::seconds(10);
}

bool is_below(const fs::path& path, const fs::path& folder) {
  const fs::path below = path.lexically_relative(folder);
  return !below.empty() && *below.begin() != "..";
}

}  // namespace

void claim_folders(Run& run, const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    const fs::path wanted = fs::absolute(folder).lexically_normal();
    const bool has_it = std::any_of(run.entry.folder_locks.begin(), run.entry.folder_locks.end(),
                                    [&](const auto& lock) { return is_below(wanted, lock->folder()); });
    if (!has_it) run.entry.folder_locks.push_back(std::make_unique<FolderLock>(wanted.string(), patience(run)));
  }
}

void release_folders(EntryPoint& entry) {
  entry.folder_locks.clear();
}

void start_loggers(Run& run) {
  const bool resume = run.auto_resume && run.entry.stage == Stage::fit;
  const std::string log_dir = on_rank_zero(*run.strategy, [&] {
    for (const auto& logger : run.loggers) {
      if (!run.loggers_started) {
        run.started_again ? logger->start_again(run.plan.root_dir, resume) : logger->start(run.plan.root_dir, resume);
      }
      if (logger->log_dir().empty()) continue;
      claim_folders(run, {logger->log_dir()});
      logger->own_folder();
    }
    return run.loggers.empty() ? std::string() : run.loggers[0]->log_dir();
  });
  for (const auto& logger : run.loggers) {
    if (auto* quiet = dynamic_cast<QuietLogger*>(logger.get())) quiet->set_log_dir(log_dir);
  }
  run.loggers_started = true;
}

}  // namespace levin
