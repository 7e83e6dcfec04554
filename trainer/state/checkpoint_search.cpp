#include "levin/trainer/state/checkpoint_search.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/checkpoint_values.h"
#include "levin/checkpoint/sharded_checkpoint.h"
#include "levin/checkpoint/sharded_record.h"
#include "levin/core/files/files.h"
#include "levin/core/files/json_depth.h"
#include "levin/core/process/console.h"
#include "levin/core/storage/staging.h"
#include "levin/trainer/checkpoint_callback.h"
#include "levin/trainer/run/ranks.h"
#include "levin/trainer/run/run_folders.h"
#include "levin/trainer/state/missing_state.h"
#include "levin/trainer/state/model_match.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

constexpr const char* kSuffix = ".ckpt";
constexpr const char* kRunRecord = "run.json";
constexpr uint64_t kMaxRecordBytes = 16 << 20;
constexpr size_t kMaxFolders = 10'000;

using Folders = std::vector<std::string>;
using Files = std::vector<std::string>;

bool is_there(const fs::path& path) {
  std::error_code code;
  return fs::exists(path, code);
}

enum class Runs { own, all };

// The folder and those below it in which checkpoints may be: no sharded checkpoints, no links, and of the same run no
// folders of other runs. The first kMaxFolders: default_root_dir may be a folder with anything else in it.
Folders folders_below(const std::string& folder, Runs runs = Runs::own) {
  Folders all{folder};
  for (size_t k = 0; k < all.size() && all.size() < kMaxFolders; ++k) {
    for (const std::string& name : names_in(all[k])) {
      const fs::path path = fs::path(all[k]) / name;
      std::error_code code;
      const bool is_folder = fs::is_directory(fs::symlink_status(path, code));
      const bool is_another_runs = runs == Runs::own && is_there(path / kRunRecord);
      const bool is_dropped = name.starts_with(detail::kDropped);
      if (is_folder && !name.ends_with(kSuffix) && !is_dropped && !is_another_runs) all.push_back(path.string());
    }
  }
  return all;
}

// The folders of this run's checkpoint callbacks.
Folders folders_of_callbacks(Run& run) {
  Folders own;
  for (Checkpoint* callback : checkpoint_callbacks(run.entry.callbacks)) {
    const std::string path = callback->checkpoint_path(run.trainer, "interrupted");
    const std::string folder = fs::path(path).parent_path().string();
    if (!path.empty() && std::find(own.begin(), own.end(), folder) == own.end()) own.push_back(folder);
  }
  return own;
}

// The folder that the run's loggers write to; "" without one.
std::string log_folder(const Run& run) {
  return run.loggers.empty() ? "" : run.loggers[0]->log_dir();
}

// The folders in which the run of a log folder has saved, by its record: also those outside of the log folder.
Folders recorded_folders(const std::string& log_folder) {
  Folders all;
  const fs::path file = fs::path(log_folder) / kRunRecord;
  if (!is_there(file)) return all;
  try {
    const auto record = parse_json(read_file(file.string(), kMaxRecordBytes));
    for (const auto& saved : record.at("checkpoints")) {
      const fs::path path = fs::path(log_folder) / saved.at("path").get<std::string>();
      all.push_back(absolute_path(path.parent_path().string()));
    }
  } catch (const Error& error) {
    Console::instance().warn(std::string("auto_resume: ") + error.what() +
                             " Folders that it would name are not searched.");
  } catch (const std::exception&) {
    // a record of another form: nothing else is known
  }
  return all;
}

// Where to search, run by run: this run's folders, then the folders of earlier runs, newest first.
std::vector<Folders> folders_by_run(Run& run) {
  std::vector<Folders> all{folders_of_callbacks(run)};
  if (run.loggers.empty()) return all;
  for (const std::string& earlier : run.loggers[0]->earlier_log_dirs()) all.push_back({absolute_path(earlier)});
  return all;
}

// Of files with the same position in the run, the one written last comes first: last.ckpt; the file of a stop comes
// last.
void sort_newest_first(std::vector<FoundCheckpoint>& found) {
  const auto rank = [](const FoundCheckpoint& one) {
    const std::string name = fs::path(one.path).filename().string();
    return name.starts_with("last") ? 0 : name == "interrupted.ckpt" ? 2 : 1;
  };
  std::sort(found.begin(), found.end(), [&](const FoundCheckpoint& a, const FoundCheckpoint& b) {
    if (a.how_far != b.how_far) return a.how_far > b.how_far;
    return std::pair(rank(a), a.path) < std::pair(rank(b), b.path);
  });
}

// Neither a folder whose save was never committed nor a dangling link is worth a warning.
bool is_unfinished(const std::string& path) {
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  return status.type() == fs::file_type::not_found || (fs::is_directory(status) && !is_sharded_checkpoint(path));
}

// Adds a checkpoint that is finished and holds what is wanted; one that cannot be read is reported. One that another
// version of Levin can read is an error: the run would fall back behind it, or start over.
void add_if_good(const std::string& path, bool of_weights, std::vector<FoundCheckpoint>& found) {
  if (is_unfinished(path)) return;
  try {
    const ConfigNode values = load_checkpoint_values(path);
    State all;
    all.values = values;
    naming_checkpoint(path, [&] {
      if (all.get<bool>("weights_only") != of_weights) return;
      found.push_back(
          {path, of_weights ? HowFar{all.get<int64_t>("global_step"), all.get<int64_t>("epoch")} : how_far(values)});
    });
  } catch (const CheckpointFormatError& error) {
    throw CheckpointFormatError(std::string(error.what()) +
                                " To continue from an older checkpoint, move this file out of the folder.");
  } catch (const CheckpointError& error) {
    Console::instance().warn(std::string(error.what()) + " It is left alone.");
  }
}

// Every checkpoint of the folders and those below them, newest first; none of folders that have been searched before.
std::vector<FoundCheckpoint> find_in(const Folders& folders, std::set<std::string>& searched, bool of_weights = false,
                                     Runs runs = Runs::own) {
  std::vector<FoundCheckpoint> found;
  for (const std::string& folder : folders) {
    for (const std::string& each : folders_below(folder, runs)) {
      if (!searched.insert(each).second) continue;
      for (FoundCheckpoint& one : find_checkpoints(each, of_weights)) found.push_back(std::move(one));
    }
  }
  sort_newest_first(found);
  return found;
}

// The same, and the files that callbacks name: they may be in a folder that is not searched.
std::vector<FoundCheckpoint> find_in(const Folders& folders, const Files& named, bool of_weights = false) {
  std::set<std::string> searched;
  std::vector<FoundCheckpoint> found = find_in(folders, searched, of_weights);
  for (const std::string& path : named) {
    const std::string folder = fs::path(path).parent_path().string();
    const bool was_seen = path.ends_with(kSuffix) && !folder.empty() && searched.contains(folder);
    if (!was_seen) add_if_good(path, of_weights, found);
  }
  sort_newest_first(found);
  return found;
}

// The newest of a run that is whole. `exact`: a run that resumes automatically must continue bitwise identically,
// because a difference would go unnoticed. Throws CheckpointError if only other checkpoints are left: the run must not
// start over while one is there.
StartingPoint newest_of(const Run& run, const std::vector<FoundCheckpoint>& all, bool exact) {
  const int64_t ranks = run.strategy->ranks().world_size();
  std::string inexact;
  for (size_t k = 0; k < all.size(); ++k) {
    const FoundCheckpoint& found = all[k];
    std::string problem;
    try {
      StartingPoint start{found.path, load_checkpoint(found.path)};
      if (!exact || has_random_state(start.checkpoint, ranks)) return start;
      const bool of_one_rank = start.checkpoint.tensors.contains("rng.cpu");
      problem = inexact = found.path + ": it holds no state of the random numbers" +
                          (of_one_rank ? " of all ranks" : "") +
                          ", so that auto_resume cannot continue from it with "
                          "bitwise identical results. Name it as ckpt_path to continue with different random numbers.";
      // After a stop, OnExceptionCheckpoint's file is of one rank, and the next one of all.
      if (of_one_rank && k + 1 < all.size() && all[k + 1].how_far == found.how_far) continue;
    } catch (const CheckpointError& error) {
      problem = error.what();
    }
    Console::instance().warn(problem + " The newest good one before it is looked for.");
  }
  if (!inexact.empty()) throw CheckpointError("auto_resume: there is no other checkpoint. " + inexact);
  return {};
}

// The newest checkpoint of a run; for an evaluation a weights-only checkpoint if there is no other.
StartingPoint newest_of(const Run& run, const Folders& folders, const Files& named = {}) {
  StartingPoint start = newest_of(run, find_in(folders, named), /*exact=*/false);
  if (!start.path.empty() || run.entry.stage == Stage::fit) return start;
  const auto weights = find_in(folders, named, /*of_weights=*/true);
  return weights.empty() ? start : StartingPoint{weights[0].path, load_checkpoint(weights[0].path)};
}

StartingPoint read_start(const std::string& path) {
  return {path, load_checkpoint(path)};
}

// What was found for "best" or "last".
struct NewestOfModel {
  StartingPoint start = {};
  Folders folders = {};     // of its run
  std::string others = "";  // newer runs of other models, joined
};

// The newest checkpoint of the newest run that has one of this run's model. Runs of other models are reported. `named`
// are files of this run, besides those in its folders.
NewestOfModel newest_of_model(const Run& run, const std::vector<Folders>& by_run, Files named = {}) {
  std::string others;
  for (const Folders& folders : by_run) {
    for (const std::string& folder : folders) fetch_staged(folder);
    StartingPoint start = newest_of(run, folders, std::exchange(named, {}));
    if (start.path.empty()) continue;
    const std::string other = other_model_text(*run.entry.module, start.checkpoint);
    if (other.empty()) return {std::move(start), folders, others};
    const std::string text = start.path + " is of another model: " + other + ".";
    Console::instance().warn("ckpt_path: " + text + " An earlier run is looked for.");
    others += " " + text;
  }
  return {{}, {}, others};
}

size_t length_of_same_ending(const std::string& one, const std::string& other) {
  return static_cast<size_t>(std::mismatch(one.rbegin(), one.rend(), other.rbegin(), other.rend()).first -
                             one.rbegin());
}

// The file that a checkpoint calls the best, in the folder of its run, which may have been moved; "" if it is not
// there.
std::string find_saved_best(const State& callback, const Folders& folders) {
  if (!callback.has("best_model_path") || !callback.has("dirpath")) return "";
  const auto saved = callback.get<std::string>("best_model_path");
  const fs::path name = fs::path(saved).lexically_relative(callback.get<std::string>("dirpath"));
  if (name.empty() || *name.begin() == "..") {
    std::string path = local_path(saved);
    return is_there(path) ? path : "";
  }
  std::string best;
  for (const std::string& root : folders) {
    for (const std::string& folder : folders_below(root)) {
      const std::string path = (fs::path(folder) / name).string();
      const bool is_nearer = best.empty() || length_of_same_ending(path, saved) > length_of_same_ending(best, saved);
      if (is_there(path) && is_nearer) best = path;
    }
  }
  return best;
}

// The best file by the state of this run's callbacks in a checkpoint, else by the state of any other callback.
std::string saved_best(Run& run, const State& checkpoint, const Folders& folders) {
  std::vector<std::string> keys;
  for (const Checkpoint* callback : checkpoint_callbacks(run.entry.callbacks)) {
    keys.push_back("callbacks." + callback->state_key());
  }
  for (const auto& entry : checkpoint.values.entries) {
    if (entry.key.starts_with("callbacks.")) keys.push_back(entry.key);
  }
  for (const std::string& key : keys) {
    if (std::string path = find_saved_best(checkpoint.part(key), folders); !path.empty()) return path;
  }
  return "";
}

[[noreturn]] void throw_none(const std::string& word, const std::string& others) {
  throw CheckpointError("ckpt_path: \"" + word + "\" was asked for, but there is no checkpoint" +
                        (others.empty() ? "." : " of this model." + others) + " Give a path, or fit first.");
}

// The best of this trainer's fit, else the one recorded in the newest checkpoint of an earlier run.
StartingPoint find_best(Run& run) {
  const std::string own = first_checkpoint_path(run.entry.callbacks, run.trainer, "best");
  if (!own.empty()) return read_start(own);
  const NewestOfModel newest = newest_of_model(run, folders_by_run(run));
  if (newest.start.path.empty()) throw_none("best", newest.others);
  const std::string path = saved_best(run, newest.start.checkpoint, newest.folders);
  if (!path.empty()) return read_start(path);
  throw CheckpointError("ckpt_path: \"best\" was asked for, but the newest checkpoint, " + newest.start.path +
                        ", names no best one that exists (a checkpoint of weights alone never does). Give a path, or "
                        "\"last\".");
}

// The same, or nothing.
StartingPoint find_best_if_any(Run& run) {
  const std::string own = first_checkpoint_path(run.entry.callbacks, run.trainer, "best");
  if (!own.empty()) return read_start(own);
  const NewestOfModel newest = newest_of_model(run, folders_by_run(run));
  if (newest.start.path.empty()) return {};
  const std::string path = saved_best(run, newest.start.checkpoint, newest.folders);
  return path.empty() ? StartingPoint() : read_start(path);
}

// The files that this run's callbacks call the last; without those of earlier runs, which are found there.
Files named_last(Run& run, const std::vector<Folders>& by_run) {
  Files named;
  for (Checkpoint* callback : checkpoint_callbacks(run.entry.callbacks)) {
    const std::string path = callback->checkpoint_path(run.trainer, "last");
    if (path.empty()) continue;
    const bool is_earlier = std::any_of(by_run.begin() + 1, by_run.end(), [&](const Folders& folders) {
      return is_inside(absolute_path(path), folders.front());
    });
    if (!is_earlier) named.push_back(path);
  }
  return named;
}

StartingPoint find_last(Run& run) {
  const std::vector<Folders> by_run = folders_by_run(run);
  NewestOfModel newest = newest_of_model(run, by_run, named_last(run, by_run));
  if (!newest.start.path.empty()) return std::move(newest.start);
  if (run.entry.stage != Stage::fit || !newest.others.empty()) throw_none("last", newest.others);
  Console::instance().warn(
      "ckpt_path: last was asked for, but there is no checkpoint yet. Training starts from the beginning.");
  return {};
}

// A folder that is not a sharded checkpoint, finished or not.
bool is_run_folder(const std::string& path) {
  std::error_code code;
  if (path.ends_with(kSuffix) || !fs::is_directory(path, code) || is_sharded_checkpoint(path)) return false;
  const std::vector<std::string> names = names_in(path);
  return std::none_of(names.begin(), names.end(), [](const std::string& name) { return is_shard_name(name); });
}

// Finds the checkpoint in the folder of a run: the newest to continue, the best (if there is one) to evaluate.
StartingPoint start_in_folder(Run& run, const std::string& folder) {
  StartingPoint newest = newest_of(run, {folder});
  if (newest.path.empty()) {
    throw CheckpointError(
        "ckpt_path: the folder " + folder + " holds no checkpoint" +
        (run.entry.stage == Stage::fit ? " with the state of a run" : "") +
        " (*.ckpt, also in its subfolders). Give the path of a checkpoint, or the folder of a run that "
        "has saved one.");
  }
  if (run.entry.stage == Stage::fit) return newest;
  const std::string best = saved_best(run, newest.checkpoint, {folder});
  return best.empty() ? newest : read_start(best);
}

}  // namespace

std::vector<FoundCheckpoint> find_checkpoints(const std::string& folder, bool of_weights) {
  std::vector<FoundCheckpoint> found;
  for (const std::string& name : names_in(folder)) {
    if (name.ends_with(kSuffix)) add_if_good((fs::path(folder) / name).string(), of_weights, found);
  }
  sort_newest_first(found);
  return found;
}

namespace {

// A run never starts over silently: it warns in a folder that an earlier start of it has used.
void warn_of_starting_over(const Run& run) {
  const std::string folder = log_folder(run);
  const auto& made = run.new_folders;
  if (folder.empty() || std::find(made.begin(), made.end(), folder) != made.end()) return;
  Console::instance().warn("auto_resume: " + folder +
                           " is the folder of an earlier start, but it holds no checkpoint with the state of the run. "
                           "The run starts from the beginning, and its metrics are written anew.");
}

// Whether a checkpoint may be of this run: it can be read, and its weights fit the module.
bool is_of_this_model(const Run& run, const std::string& path) {
  try {
    return other_model_text(*run.entry.module, load_checkpoint(path)).empty();
  } catch (const CheckpointError&) {
    return false;
  }
}

// Without a logger's folder it is not known which run below default_root_dir is to be continued, so the user must name
// it. Ranks that the launcher restarts are exempt: their job has already started from the beginning.
void refuse_to_start_over(Run& run, std::set<std::string>& searched) {
  if (!log_folder(run).empty() || run.started_again) return;
  const std::string root = absolute_path(run.plan.root_dir);
  for (const FoundCheckpoint& found : find_in({root}, searched, /*of_weights=*/false, Runs::all)) {
    if (!is_of_this_model(run, found.path)) continue;
    throw CheckpointError(
        "auto_resume: no logger of this run keeps a folder, and where its checkpoint callbacks save (" +
        join(folders_of_callbacks(run)) + ") there is no checkpoint, but " + found.path +
        " below default_root_dir holds the state of a run of this model. Name it as ckpt_path to "
        "continue that run. Set another default_root_dir, or auto_resume: false, to start a new one.");
  }
}

// The newest checkpoint of this run's own folders, after removing the remains of a killed process.
StartingPoint continue_run(Run& run) {
  const Folders folders = folders_of_callbacks(run);
  claim_folders(run, folders);
  for (const std::string& folder : folders) {
    for (const std::string& each : folders_below(folder)) {
      remove_leftovers(each);
      remove_abandoned_shards(each);
    }
  }
  for (const auto& logger : run.loggers) {
    if (!logger->log_dir().empty()) remove_leftovers(logger->log_dir());
  }
  std::set<std::string> searched;
  StartingPoint start = newest_of(run, find_in(folders, searched), /*exact=*/true);
  // If the callbacks now save to a different folder, the run's folder, or one that its record names, may still contain
  // what they saved before.
  if (start.path.empty() && !log_folder(run).empty()) {
    Folders before = recorded_folders(log_folder(run));
    before.push_back(absolute_path(log_folder(run)));
    start = newest_of(run, find_in(before, searched), /*exact=*/true);
  }
  if (start.path.empty()) {
    refuse_to_start_over(run, searched);
    warn_of_starting_over(run);
    for (const auto& logger : run.loggers) logger->load_state_dict(State());  // rows of a run that saved nothing
  }
  start.continues = !start.path.empty();
  return start;
}

StartingPoint find_start_alone(Run& run) {
  if (run.entry.stage == Stage::fit) {
    for (const std::string& folder : folders_of_callbacks(run)) {
      if (!staged_url(folder).empty()) claim_folders(run, {folder});
    }
  }
  // The same command as the first time: its ckpt_path is where the run began, not where it stopped.
  if (run.started_again && run.entry.stage == Stage::fit) {
    StartingPoint start = continue_run(run);
    if (!start.path.empty() || run.entry.ckpt_path.empty()) return start;
  }
  if (run.entry.ckpt_path == "best") return find_best(run);
  if (run.entry.ckpt_path == kBestIfAny) return find_best_if_any(run);
  if (run.entry.ckpt_path == "last") return find_last(run);
  if (is_run_folder(run.entry.ckpt_path)) return start_in_folder(run, run.entry.ckpt_path);
  if (!run.entry.ckpt_path.empty()) return read_start(run.entry.ckpt_path);
  if (!run.auto_resume || run.entry.stage != Stage::fit) return {};
  return continue_run(run);
}

}  // namespace

StartingPoint find_start(Run& run) {
  if (!run.has_peers()) return find_start_alone(run);
  StartingPoint found;
  RankCollectives& ranks = run.strategy->ranks();
  const std::string path = on_rank_zero(ranks, [&] {
    found = find_start_alone(run);
    return found.path;
  });
  if (path.empty()) return found;
  on_every_rank(ranks, [&] {
    if (ranks.rank() == 0) return;
    if (!is_there(path)) fetch_staged(path);
    if (!is_there(path)) {
      throw CheckpointError(path +
                            ": rank 0 continues from this checkpoint, and this machine does not have it. Every rank "
                            "reads it at the same path: let default_root_dir be a folder that all machines share, or "
                            "copy the checkpoint to that path.");
    }
    found = read_start(path);
  });
  return found;
}

}  // namespace levin
