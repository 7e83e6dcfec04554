#include "levin/trainer/state/checkpoint_search.h"

#include <algorithm>
#include <filesystem>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/sharded_checkpoint.h"
#include "levin/core/console.h"
#include "levin/core/paths.h"
#include "levin/core/temporary_file.h"
#include "levin/trainer/run/ranks.h"
#include "levin/trainer/run/run_folders.h"
#include "levin/trainer/state/missing_state.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

constexpr const char* kSuffix = ".ckpt";

// The folders of this run's checkpoint callbacks, and the corresponding folders of earlier runs.
std::vector<std::string> folders_of(Run& run, bool earlier_runs) {
  std::vector<std::string> own;
  for (const auto& callback : run.entry.callbacks) {
    if (!callback->is_checkpoint()) continue;
    const std::string path = callback->checkpoint_path(run.trainer, "interrupted");
    const std::string folder = fs::path(path).parent_path().string();
    if (!path.empty() && std::find(own.begin(), own.end(), folder) == own.end()) own.push_back(folder);
  }
  std::vector<std::string> all = own;
  if (!earlier_runs || run.loggers.empty()) return all;
  const fs::path log_dir = absolute_path(run.trainer.log_dir());
  for (const std::string& earlier : run.loggers[0]->earlier_log_dirs()) {
    for (const std::string& folder : own) {
      const fs::path below = fs::path(folder).lexically_relative(log_dir);
      if (below.empty() || *below.begin() == "..") continue;  // a fixed folder, the same for every run
      all.push_back(absolute_path((fs::path(earlier) / below).string()));
    }
  }
  return all;
}

// A run that resumes automatically must give the same bits as an uninterrupted one; a difference would go unnoticed.
void check_exact(const StartingPoint& start) {
  if (has_random_state(start.checkpoint)) return;
  throw CheckpointError(start.path +
                        ": it holds no state of the random numbers, so that auto_resume cannot continue "
                        "from it to the same bits. Name it as ckpt_path to continue with others.");
}

// The newest of a folder that is whole.
StartingPoint newest_of(const std::string& folder, bool exact) {
  for (const FoundCheckpoint& found : find_checkpoints(folder)) {
    try {
      StartingPoint start{found.path, load_checkpoint(found.path)};
      if (exact) check_exact(start);
      return start;
    } catch (const CheckpointError& error) {
      Console::instance().warn(std::string(error.what()) + " The newest good one before it is looked for.");
    }
  }
  return {};
}

StartingPoint newest_of_all(Run& run, bool earlier_runs, bool exact = false) {
  for (const std::string& folder : folders_of(run, earlier_runs)) {
    StartingPoint start = newest_of(folder, exact);
    if (!start.path.empty()) return start;
  }
  return {};
}

StartingPoint read_start(const std::string& path) {
  return {path, load_checkpoint(path)};
}

// The best of this trainer's fit, else the one recorded in the newest checkpoint of an earlier run.
StartingPoint find_best(Run& run) {
  for (const auto& callback : run.entry.callbacks) {
    if (!callback->is_checkpoint()) continue;
    const std::string path = callback->checkpoint_path(run.trainer, "best");
    if (!path.empty()) return read_start(path);
  }
  const StartingPoint newest = newest_of_all(run, true);
  for (const auto& callback : run.entry.callbacks) {
    if (newest.path.empty() || !callback->is_checkpoint()) continue;
    const State saved = newest.checkpoint.part("callbacks." + callback->state_key());
    if (!saved.has("best_model_path")) continue;
    const auto name = fs::path(saved.get<std::string>("best_model_path")).filename();
    const fs::path path = fs::path(newest.path).parent_path() / name;
    std::error_code code;
    if (!name.empty() && fs::exists(path, code)) return read_start(path.string());
  }
  throw CheckpointError(
      "ckpt_path: \"best\" was asked for, but no checkpoint callback has saved one. Give a path, or fit first.");
}

StartingPoint find_last(Run& run) {
  StartingPoint start = newest_of_all(run, true);
  if (!start.path.empty()) return start;
  if (run.entry.stage == Stage::fit) {
    Console::instance().warn(
        "ckpt_path: last was asked for, but there is no checkpoint yet. Training starts from the beginning.");
    return {};
  }
  throw CheckpointError("ckpt_path: \"last\" was asked for, but there is no checkpoint. Give a path, or fit first.");
}

}  // namespace

namespace {

// Neither a folder whose save was never committed nor a dangling link is worth a warning.
bool is_unfinished(const std::string& path) {
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  return status.type() == fs::file_type::not_found || (fs::is_directory(status) && !is_sharded_checkpoint(path));
}

}  // namespace

std::vector<FoundCheckpoint> find_checkpoints(const std::string& folder) {
  std::vector<FoundCheckpoint> found;
  for (const std::string& name : names_in(folder)) {
    if (!name.ends_with(kSuffix)) continue;
    const std::string path = (fs::path(folder) / name).string();
    if (is_unfinished(path)) continue;
    try {
      const ConfigNode values = load_checkpoint_values(path);
      State all;
      all.values = values;
      naming_checkpoint(path, [&] {
        if (!all.get<bool>("weights_only")) found.push_back({path, how_far(values)});
      });
    } catch (const CheckpointError& error) {
      Console::instance().warn(std::string(error.what()) + " It is left alone.");
    }
  }
  // Of files with the same position in the run the one written last: last.ckpt; the file of a stop only if there is no
  // other.
  const auto rank = [](const FoundCheckpoint& one) {
    const std::string name = fs::path(one.path).filename().string();
    return name.starts_with("last") ? 0 : name == "interrupted.ckpt" ? 2 : 1;
  };
  std::sort(found.begin(), found.end(), [&](const FoundCheckpoint& a, const FoundCheckpoint& b) {
    if (a.how_far != b.how_far) return a.how_far > b.how_far;
    return std::pair(rank(a), a.path) < std::pair(rank(b), b.path);
  });
  return found;
}

namespace {

// The newest checkpoint of this run's own folder, after removing the remains of a killed process.
StartingPoint continue_run(Run& run) {
  const std::vector<std::string> folders = folders_of(run, false);
  claim_folders(run, folders);
  for (const std::string& folder : folders) {
    remove_leftovers(folder);
    remove_abandoned_shards(folder);
  }
  for (const auto& logger : run.loggers) {
    if (!logger->log_dir().empty()) remove_leftovers(logger->log_dir());
  }
  StartingPoint start = newest_of_all(run, false, true);
  if (start.path.empty()) {
    for (const auto& logger : run.loggers) logger->load_state(State());  // rows of a run that saved nothing
  }
  start.continues = !start.path.empty();
  return start;
}

StartingPoint find_start_alone(Run& run) {
  // The same command as the first time: its ckpt_path is where the run began, not where it stopped.
  if (run.started_again && run.entry.stage == Stage::fit) {
    StartingPoint start = continue_run(run);
    if (!start.path.empty() || run.entry.ckpt_path.empty()) return start;
  }
  if (run.entry.ckpt_path == "best") return find_best(run);
  if (run.entry.ckpt_path == "last") return find_last(run);
  if (!run.entry.ckpt_path.empty()) return read_start(run.entry.ckpt_path);
  if (!run.auto_resume || run.entry.stage != Stage::fit) return {};
  return continue_run(run);
}

}  // namespace

StartingPoint find_start(Run& run) {
  if (!run.has_peers()) return find_start_alone(run);
  StartingPoint found;
  const std::string path = on_rank_zero(*run.strategy, [&] {
    found = find_start_alone(run);
    return found.path;
  });
  if (run.strategy->rank() == 0 || path.empty()) return found;
  return read_start(path);
}

}  // namespace levin
