// The file handling of ModelCheckpoint, and its state in checkpoints.
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "levin/callbacks/checkpoint_folder.h"
#include "levin/callbacks/model_checkpoint.h"
#include "levin/callbacks/on_exception_checkpoint.h"
#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/checkpoint_values.h"
#include "levin/checkpoint/checkpoint_writer.h"
#include "levin/checkpoint/run_parts.h"
#include "levin/checkpoint/sharded_checkpoint.h"
#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/storage/staging.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

constexpr const char* kInterrupted = "interrupted.ckpt";
constexpr const char* kNewest = "last";  // without .ckpt

bool is_on_disk(const std::string& path) {
  std::error_code code;
  return fs::exists(fs::symlink_status(path, code));
}

// Whether an OnExceptionCheckpoint of the run saves there; the file goes once the run has ended well.
bool is_of_exception(const Trainer& trainer, const std::string& path) {
  const auto& all = trainer.callbacks();
  return std::any_of(all.begin(), all.end(), [&](const std::shared_ptr<Callback>& one) {
    const auto* on_exception = dynamic_cast<const OnExceptionCheckpoint*>(one.get());
    return on_exception != nullptr && is_same_file(on_exception->ckpt_path(), path);
  });
}

// Whether another callback of the run owns the file.
bool is_of_another(const Trainer& trainer, const Callback& self, const std::string& path) {
  const auto& all = trainer.callbacks();
  return is_of_exception(trainer, path) ||
         std::any_of(all.begin(), all.end(), [&](const std::shared_ptr<Callback>& one) {
           const auto* other = dynamic_cast<const ModelCheckpoint*>(one.get());
           return other != nullptr && one.get() != &self && other->owns(path);
         });
}

// The part of a checkpoint that a file with save_weights_only holds.
State weights_of(State whole) {
  std::erase_if(whole.values.entries, [](const auto& entry) { return is_in_run_part(entry.key); });
  std::erase_if(whole.tensors, [](const auto& item) { return is_in_run_part(item.first); });
  whole.set("weights_only", true);
  return whole;
}

}  // namespace

std::string ModelCheckpoint::interrupted_path() const {
  return (fs::path(dirpath_) / kInterrupted).string();
}

bool ModelCheckpoint::owns(const std::string& path) const {
  const auto is_it = [&](const std::string& mine) { return is_same_file(mine, path); };
  const auto& best = saved_files_.best;
  return is_it(saved_files_.best_path) || is_it(saved_files_.last_path) ||
         std::any_of(best.begin(), best.end(), [&](const Scored& file) { return is_it(file.first); }) ||
         (failing_ && std::any_of(point_.written.begin(), point_.written.end(), is_it));
}

// `own` will be replaced, so its name is free. Files of other callbacks count as taken before they are on the disk.
// last.ckpt is kept for the newest state if there is to be one, and interrupted.ckpt for a stop.
bool ModelCheckpoint::is_taken(const Trainer& trainer, const std::string& path, const std::string& own,
                               bool is_last) const {
  if (path == interrupted_path() || is_of_another(trainer, *this, path)) return true;
  if (path == own) return false;
  const bool is_mine_already =
      is_last ? owns(path) && path != saved_files_.last_path
              : path == saved_files_.last_path || (wants_last() && path == versioned_path(dirpath_, kNewest, 0));
  return is_mine_already || (options_.enable_version_counter && is_on_disk(path) && !is_abandoned(trainer, path));
}

// A folder of a run with auto_resume is this run's alone. From a newer whole checkpoint it would have continued. A run
// that starts over, since it was killed before its first whole checkpoint, only knows that its log folder is its own.
bool ModelCheckpoint::is_abandoned(const Trainer& trainer, const std::string& path) const {
  if (!options_.save_weights_only || !trainer.auto_resumes()) return false;
  const bool starts_over = trainer.ckpt_path().empty() && is_inside(path, trainer.log_dir());
  if (!starts_over && !continues_own_file_) return false;
  try {
    State saved;
    saved.values = read_checkpoint_values(path);
    return saved.get<bool>("weights_only") && saved.get<int64_t>("global_step") > continued_step_;
  } catch (const Error&) {
    return false;  // another file
  }
}

// Rank 0 reads the folder and sends the version to all ranks; after a failure every rank is alone, and only rank 0
// writes.
std::string ModelCheckpoint::free_path(Trainer& trainer, const std::string& stem, const std::string& own,
                                       bool is_last) const {
  int64_t version = 0;
  if (trainer.global_rank() == 0) {
    version =
        free_version(dirpath_, stem, [&](const std::string& path) { return is_taken(trainer, path, own, is_last); });
  }
  if (trainer.world_size() > 1 && !failing_) {
    const at::Tensor mine = at::scalar_tensor(version, at::TensorOptions(at::kLong).device(trainer.device()));
    version = trainer.strategy().ranks().reduce(mine, ReduceOp::max).item().toLong();
  }
  return versioned_path(dirpath_, stem, version);
}

void ModelCheckpoint::request(Trainer& trainer, const std::string& path, const std::string& link_to,
                              std::vector<std::string> obsolete, std::function<void()> undo) {
  CheckpointRequest wanted{path, options_.save_weights_only, link_to, std::move(obsolete), options_.async_save};
  wanted.folder = dirpath_;
  const auto save = std::make_shared<OpenSave>(OpenSave{std::move(undo)});
  const bool is_alone = trainer.world_size() == 1 || failing_;
  if (!is_alone) open_saves_.push_back(save);
  wanted.done = [this, &trainer, path, save, is_alone](const std::string& error) {
    save->failed = !error.empty();
    if (save->failed && is_alone) save->undo();
    report(trainer, path, error);
  };
  trainer.request_checkpoint(std::move(wanted));
}

// See Note [Failed saves].
void ModelCheckpoint::finish_saves(Trainer& trainer) {
  trainer.finish_checkpoints();
  const std::vector<std::shared_ptr<OpenSave>> saves = std::exchange(open_saves_, {});
  if (saves.empty()) return;
  at::Tensor failed = at::zeros({static_cast<int64_t>(saves.size())}, at::TensorOptions(at::kLong));
  for (size_t k = 0; k < saves.size(); ++k) failed[static_cast<int64_t>(k)] = static_cast<int64_t>(saves[k]->failed);
  failed = trainer.strategy().ranks().reduce(failed, ReduceOp::max);
  for (size_t k = 0; k < saves.size(); ++k) {
    const bool is_due = failed[static_cast<int64_t>(k)].item<int64_t>() != 0 && saves[k]->undo != nullptr;
    if (is_due) saves[k]->undo();
  }
}

// After the run, users read the paths of this rank: a file that it could not write is not among them. The other ranks
// learn of it in the next fit.
void ModelCheckpoint::teardown(Trainer&, LightningModule&, Stage) {
  for (const auto& save : open_saves_) {
    if (save->failed && save->undo != nullptr) std::exchange(save->undo, nullptr)();
  }
}

void ModelCheckpoint::report(const Trainer& trainer, const std::string& path, const std::string& error) const {
  if (error.empty()) {
    if (!options_.verbose) return;
    Console::instance().print("ModelCheckpoint: epoch " + std::to_string(trainer.current_epoch()) + ", step " +
                              std::to_string(trainer.global_step()) + ": saved " + path + ".");
    return;
  }
  if (options_.on_save_error == OnSaveError::stop) throw CheckpointError(error);
  Console::instance().error("ModelCheckpoint: " + error + " Training continues.");
}

// Neither files outside the folder or of other callbacks nor a file that the user named to continue from may be
// removed.
bool ModelCheckpoint::may_remove(Trainer& trainer, const std::string& path) const {
  if (trainer.global_rank() != 0 || !is_inside(path, dirpath_)) return false;
  if (is_of_another(trainer, *this, path)) return false;
  std::error_code code;
  const bool named = !trainer.auto_resumes() && !trainer.ckpt_path().empty();
  return !named || path == interrupted_path() || !fs::equivalent(path, trainer.ckpt_path(), code);
}

// The run has continued from a checkpoint of this moment that goes when it ends well: of a stop, or of an exception.
bool ModelCheckpoint::is_only_where_it_goes(const Trainer& trainer) const {
  if (!continues_ || trainer.seen_batches() != continued_batches_) return false;
  const int64_t now = trainer.global_step();
  const auto& all = trainer.callbacks();
  const bool is_saved = std::any_of(all.begin(), all.end(), [now](const std::shared_ptr<Callback>& one) {
    const auto* saver = dynamic_cast<const ModelCheckpoint*>(one.get());
    const bool keeps_states = saver != nullptr && !saver->options_.save_weights_only;
    return keeps_states && (saver->last_step_saved_ == now || saver->last_step_of_last_ == now);
  });
  if (is_saved) return false;
  return is_same_file(continued_path_, interrupted_path()) || is_of_exception(trainer, continued_path_);
}

BestCheckpoint ModelCheckpoint::best_checkpoint() const {
  return {options_.monitor, enum_name(options_.mode), saved_files_.best_score, saved_files_.best_path};
}

std::string ModelCheckpoint::checkpoint_path(Trainer&, const std::string& which) {
  if (which == "best") return saved_files_.best_path;
  return which == "last" ? saved_files_.last_path : interrupted_path();
}

// An unusable folder is reported before the first batch, not after the first epoch.
void ModelCheckpoint::check_folder(Trainer& trainer) const {
  if (trainer.global_rank() != 0) return;
  const std::string problem = folder_problem(dirpath_, 2 * trainer.estimated_checkpoint_bytes());
  if (problem.empty()) return;
  const std::string text = "ModelCheckpoint: " + problem + " Make room, or set another .dirpath.";
  if (options_.on_save_error == OnSaveError::stop) throw CheckpointError(text);
  Console::instance().warn(text);
}

// See Note [Save points].
void ModelCheckpoint::finish_save_point(Trainer& trainer) {
  if (!std::exchange(finishes_point_, false) || trainer.global_rank() != 0) return;
  for (const std::string& path : point_.written) {
    if (!is_inside(path, dirpath_)) continue;  // by a link on the way
    try {
      State values;
      values.values = load_checkpoint_values(path);
      if (values.get<int64_t>("global_step") >= last_step_saved_) continue;
    } catch (const Error&) {
      // missing, or only half of an older one
    }
    try {
      State whole = load_checkpoint(trainer.ckpt_path());
      write_single_checkpoint(path, options_.save_weights_only ? weights_of(std::move(whole)) : whole);
    } catch (const Error& error) {
      Console::instance().error(std::string("ModelCheckpoint: ") + error.what() + " Training continues.");
    }
  }
  for (const std::string& path : point_.removed) {
    std::error_code code;
    const bool continues_from_it = fs::equivalent(path, trainer.ckpt_path(), code);
    if (is_inside(path, dirpath_) && !continues_from_it) (void)remove_checkpoint(path);
  }
}

// ---- state ----------------------------------------------------------------------------------------------------------

namespace {

// Returns true if the file is in a folder in which checkpoint callbacks of this run save.
bool is_where_callbacks_save(Trainer& trainer, const std::string& path) {
  for (Checkpoint* callback : checkpoint_callbacks(trainer.callbacks())) {
    const std::string saved = callback->checkpoint_path(trainer, "interrupted");
    if (!saved.empty() && is_inside(path, fs::path(saved).parent_path().string())) return true;
  }
  return false;
}

// Files in an object store are saved as URLs, because each machine has its own local folder for them.
std::vector<std::string> shown_paths(const std::vector<std::string>& paths) {
  std::vector<std::string> shown;
  for (const std::string& path : paths) shown.push_back(shown_path(path));
  return shown;
}

// A callback's state with this machine's paths.
State with_local_paths(State state) {
  for (const char* key : {"dirpath", "best_model_path", "last_model_path"}) {
    state.set(key, local_path(state.get<std::string>(key)));
  }
  for (const char* key : {"point_written", "point_removed", "former_dirpaths"}) {
    if (!state.has(key)) continue;
    auto paths = state.get<std::vector<std::string>>(key);
    for (std::string& path : paths) path = local_path(path);
    state.set(key, paths);
  }
  auto best = state.get<ConfigNode>("best_k_models");
  for (auto& entry : best.entries) entry.key = local_path(entry.key);
  state.values.set("best_k_models", best);
  return state;
}

}  // namespace

void ModelCheckpoint::on_load_checkpoint(Trainer& trainer, LightningModule&, const State& checkpoint) {
  continues_ = trainer.stage() == Stage::fit;
  continued_path_ = trainer.ckpt_path();
  continues_own_file_ = is_where_callbacks_save(trainer, continued_path_);
  ranks_ = &trainer.strategy().ranks();
  continued_step_ = checkpoint.get<int64_t>("global_step");
  const State progress = checkpoint.part("progress");
  continued_batches_ = progress.has("total_batches") ? progress.get<int64_t>("total_batches") : -2;
}

State ModelCheckpoint::state_dict() const {
  State state;
  state.set("dirpath", shown_path(dirpath_));
  state.set("best_model_path", shown_path(saved_files_.best_path));
  state.set("best_model_score", saved_files_.best_score);
  state.set("last_model_path", shown_path(saved_files_.last_path));
  ConfigNode best = ConfigNode::map();
  for (const auto& [path, score] : saved_files_.best) best.set(shown_path(path), ValueType<double>::write(score));
  state.values.set("best_k_models", best);
  state.set("last_step_saved", last_step_saved_);
  state.set("last_step_of_last", last_step_of_last_);
  state.set("waits_for_validation", waits_for_validation_);
  state.set("point_batches", point_.batches);
  state.set("point_written", shown_paths(point_.written));
  state.set("point_removed", shown_paths(point_.removed));
  if (!former_dirpaths_.empty()) state.set("former_dirpaths", shown_paths(former_dirpaths_));
  return state;
}

// The path in this folder of a file that the checkpoint claims; "" if it is not this run's, with a warning if it is not
// in the folder.
std::string ModelCheckpoint::own_path(const std::string& claimed) const {
  if (claimed.empty()) return "";
  const std::string name = name_within(claimed, claimed_in_);
  if (!name.empty()) return not_ours_.contains(name) ? "" : (fs::path(dirpath_) / name).string();
  if (!continues_) return "";
  Console::instance().warn("ModelCheckpoint: " + continued_path_ + " names a file that is not in " + dirpath_ + ": " +
                           cut_text(claimed, 300) + ". It is left alone.");
  return "";
}

std::vector<std::string> ModelCheckpoint::own_paths(const std::vector<std::string>& claimed) const {
  std::vector<std::string> own;
  for (const std::string& each : claimed) own.push_back(own_path(each));
  std::erase(own, "");
  return own;
}

// Whether a file in a folder that was renamed or moved may be a claimed file: it is missing, or its state names one of
// the folders that this run had. A weights-only file names no folder; it counts if the former folder is gone.
bool ModelCheckpoint::was_saved_by_this_run(const std::string& path) const {
  if (!is_on_disk(path)) return true;
  try {
    State values;
    values.values = load_checkpoint_values(path);
    const State state = values.part("callbacks." + state_key());
    if (state.empty()) return values.get<bool>("weights_only") && !is_on_disk(claimed_in_);
    const auto& former = former_dirpaths_;
    return std::find(former.begin(), former.end(), local_path(state.get<std::string>("dirpath"))) != former.end();
  } catch (const Error&) {
    return false;
  }
}

// Finds other runs' files in a folder that was renamed or moved. Rank 0 reads the files and sends the result to all
// ranks.
void ModelCheckpoint::find_files_of_others(const State& saved, RankCollectives* ranks) {
  std::vector<std::string> claimed = saved.get<std::vector<std::string>>("point_written");
  for (const std::string& path : saved.get<std::vector<std::string>>("point_removed")) claimed.push_back(path);
  for (const auto& entry : saved.get<ConfigNode>("best_k_models").entries) claimed.push_back(entry.key);
  for (const char* key : {"best_model_path", "last_model_path"}) claimed.push_back(saved.get<std::string>(key));
  std::string others;
  if (ranks == nullptr || ranks->rank() == 0) {
    for (const std::string& path : claimed) {
      const std::string name = name_within(path, claimed_in_);
      if (!name.empty() && !was_saved_by_this_run((fs::path(dirpath_) / name).string())) others += name + "\n";
    }
  }
  if (ranks != nullptr) others = ranks->broadcast(others);
  for (const std::string& name : split(others, '\n')) not_ours_.insert(name);
}

// Remembers the best file of another folder for tests and comparisons; it is never removed. The folder of the
// checkpoint, which may have been moved, is searched first.
void ModelCheckpoint::remember_best_of_others(const State& saved) {
  const std::string best = saved.get<std::string>("best_model_path");
  const std::string name = name_within(best, claimed_in_);
  const std::string moved = name.empty() ? "" : (fs::path(continued_path_).parent_path() / name).string();
  for (const std::string& path : {moved, best}) {
    if (path.empty() || is_inside(path, dirpath_) || !is_on_disk(path)) continue;
    if (path != best && !was_saved_by_this_run(path)) continue;
    saved_files_.best_path = path;
    saved_files_.best_score = saved.get<std::optional<double>>("best_model_score");
    break;
  }
}

// Note [Claims of files]
// The list of files in a checkpoint cannot be trusted, and these files are overwritten and removed. It is used only if
// the checkpoint itself is in this folder, or in the folder of another checkpoint callback of this run and was saved
// while this folder had its present path, and then as names in this folder: no path from a checkpoint is used, so a
// folder may be renamed, moved, or reached by a link. If its path has changed, each file must name a folder of the same
// run. Links are checked when files are written or removed.
void ModelCheckpoint::load_state_dict(const State& state) {
  const State saved = with_local_paths(state);
  saved_files_ = SavedFiles();
  point_ = SavePoint();
  not_ours_.clear();
  RankCollectives* const ranks = std::exchange(ranks_, nullptr);
  claimed_in_ = saved.get<std::string>("dirpath");
  former_dirpaths_ = saved.has("former_dirpaths") ? saved.get<std::vector<std::string>>("former_dirpaths")
                                                  : std::vector<std::string>();
  const bool moved = !is_same_folder(claimed_in_, dirpath_);
  if (moved) former_dirpaths_.push_back(claimed_in_);
  if (!is_inside(continued_path_, dirpath_) && (moved || !continues_own_file_)) {
    remember_best_of_others(saved);
    former_dirpaths_.clear();
    if (!continues_ || dirpath_.empty()) return;  // without its setup, in a Fabric, it saves nothing
    const std::string why = moved
                                ? "the run was saved in " + cut_text(claimed_in_, 300) + " and continues in " + dirpath_
                                : continued_path_ + " was saved in " + dirpath_ + ", but it is not in that folder";
    return Console::instance().warn("ModelCheckpoint: " + why + ". The old files stay, and only the best of them is " +
                                    "remembered.");
  }
  if (moved) find_files_of_others(saved, ranks);
  const std::string best_path = saved.get<std::string>("best_model_path");
  if (name_within(best_path, claimed_in_).empty() && !best_path.empty()) {
    remember_best_of_others(saved);
  } else {
    saved_files_.best_path = own_path(best_path);
    saved_files_.best_score = saved.get<std::optional<double>>("best_model_score");
  }
  saved_files_.last_path = own_path(saved.get<std::string>("last_model_path"));
  has_saved_ = !saved_files_.best_path.empty() || !saved_files_.last_path.empty();
  last_step_saved_ = saved.get<int64_t>("last_step_saved");
  last_step_of_last_ = saved.get<int64_t>("last_step_of_last");
  waits_for_validation_ = saved.get<bool>("waits_for_validation");
  point_ = {saved.get<int64_t>("point_batches"), own_paths(saved.get<std::vector<std::string>>("point_written")),
            own_paths(saved.get<std::vector<std::string>>("point_removed"))};
  finishes_point_ = point_.batches == continued_batches_;
  State best;
  best.values = saved.get<ConfigNode>("best_k_models");
  for (const auto& entry : best.values.entries) {
    const std::string path = own_path(entry.key);
    if (!path.empty()) saved_files_.best.emplace_back(path, best.get<double>(entry.key));
  }
}

std::string ModelCheckpoint::state_key() const {
  std::string key = "ModelCheckpoint(monitor=" + options_.monitor + ", mode=" + enum_name(options_.mode) +
                    ", every_n_epochs=" + std::to_string(every_n_epochs_) +
                    ", every_n_train_steps=" + std::to_string(every_n_train_steps_);
  if (options_.train_time_interval) key += ", train_time_interval=" + duration_text(*options_.train_time_interval);
  return key + ")";
}

}  // namespace levin
