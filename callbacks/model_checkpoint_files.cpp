// The file handling of ModelCheckpoint, and its state in checkpoints.
#include <ATen/ops/scalar_tensor.h>

#include <filesystem>
#include <utility>

#include "levin/callbacks/checkpoint_folder.h"
#include "levin/callbacks/model_checkpoint.h"
#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/checkpoint_writer.h"
#include "levin/checkpoint/run_parts.h"
#include "levin/checkpoint/sharded_checkpoint.h"
#include "levin/core/console.h"
#include "levin/core/paths.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

constexpr const char* kInterrupted = "interrupted.ckpt";

// What a file with save_weights_only holds of a checkpoint.
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

// Rank 0 reads it and sends it to all ranks.
std::string ModelCheckpoint::free_path(Trainer& trainer, const std::string& stem, const std::string& own) const {
  int64_t version = 0;
  if (options_.enable_version_counter && trainer.global_rank() == 0) version = free_version(dirpath_, stem, own);
  if (trainer.world_size() > 1) {
    const at::Tensor mine = at::scalar_tensor(version, at::TensorOptions(at::kLong).device(trainer.device()));
    version = trainer.strategy().reduce(mine, ReduceOp::max).item().toLong();
  }
  return versioned_path(dirpath_, stem, version);
}

void ModelCheckpoint::request(Trainer& trainer, const std::string& path, const std::string& link_to,
                              std::vector<std::string> obsolete, std::function<void()> undo) {
  CheckpointRequest wanted{path, options_.save_weights_only, link_to, std::move(obsolete), options_.async_save};
  if (!name_within(path, dirpath_).empty()) wanted.folder = dirpath_;  // else .filename points elsewhere on purpose
  wanted.done = [this, &trainer, path, undo = std::move(undo)](const std::string& error) {
    if (!error.empty()) undo();
    report(trainer, path, error);
  };
  trainer.request_checkpoint(std::move(wanted));
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

// Neither files outside the folder nor a file that the user named to continue from may be removed.
bool ModelCheckpoint::may_remove(Trainer& trainer, const std::string& path) const {
  if (trainer.global_rank() != 0 || !is_inside(path, dirpath_)) return false;
  std::error_code code;
  if (!fs::exists(fs::symlink_status(path, code))) return false;
  const bool named = !trainer.auto_resumes() && !trainer.ckpt_path().empty();
  return !named || path == interrupted_path() || !fs::equivalent(path, trainer.ckpt_path(), code);
}

BestCheckpoint ModelCheckpoint::best_checkpoint() const {
  return {options_.monitor, enum_word(options_.mode), saved_files_.best_score, saved_files_.best_path};
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
      write_checkpoint(path, options_.save_weights_only ? weights_of(std::move(whole)) : whole);
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

void ModelCheckpoint::on_load_checkpoint(Trainer& trainer, LightningModule&, const State& checkpoint) {
  continues_ = trainer.stage() == Stage::fit;
  continued_path_ = trainer.ckpt_path();
  const State progress = checkpoint.part("progress");
  continued_batches_ = progress.has("total_batches") ? progress.get<int64_t>("total_batches") : -2;
}

State ModelCheckpoint::state() const {
  State state;
  state.set("dirpath", dirpath_);
  state.set("best_model_path", saved_files_.best_path);
  state.set("best_model_score", saved_files_.best_score);
  state.set("last_model_path", saved_files_.last_path);
  ConfigNode best = ConfigNode::map();
  for (const auto& [path, score] : saved_files_.best) best.set(path, ValueType<double>::write(score));
  state.values.set("best_k_models", best);
  state.set("last_step_saved", last_step_saved_);
  state.set("last_step_of_last", last_step_of_last_);
  state.set("waits_for_validation", waits_for_validation_);
  state.set("point_batches", point_.batches);
  state.set("point_written", point_.written);
  state.set("point_removed", point_.removed);
  return state;
}

// The path in this folder of a saved one; "" and a warning if it is not in this folder.
std::string ModelCheckpoint::own_path(const std::string& saved) const {
  if (saved.empty()) return "";
  const std::string name = name_within(saved, dirpath_);
  if (!name.empty()) return (fs::path(dirpath_) / name).string();
  if (!continues_) return "";
  Console::instance().warn("ModelCheckpoint: " + continued_path_ + " names a file that is not in " + dirpath_ + ": " +
                           cut_text(saved, 300) + ". It is left alone.");
  return "";
}

std::vector<std::string> ModelCheckpoint::own_paths(const std::vector<std::string>& saved) const {
  std::vector<std::string> own;
  for (const std::string& each : saved) own.push_back(own_path(each));
  std::erase(own, "");
  return own;
}

// The best file of another folder is remembered for testing, but never removed.
void ModelCheckpoint::remember_best_of_others(const State& saved, const std::string& saved_in) {
  const std::string best = saved.get<std::string>("best_model_path");
  if (!is_inside(best, dirpath_)) {
    saved_files_.best_path = best;
    saved_files_.best_score = saved.get<std::optional<double>>("best_model_score");
  }
  if (!continues_) return;
  const std::string why =
      saved_in == dirpath_
          ? continued_path_ + " says that it was saved in " + dirpath_ + ", but it is not in that folder"
          : "the run was saved in " + cut_text(saved_in, 300) + " and continues in " + dirpath_;
  Console::instance().warn("ModelCheckpoint: " + why +
                           ". The old files stay, and only the best of them is remembered.");
}

// Note [Claims of files]
// The list of files in a checkpoint cannot be trusted, and these files are overwritten and removed. It is used only if
// the checkpoint itself is in this folder, and then as names in it: no path from a checkpoint is used. Links are
// checked when files are written or removed.
void ModelCheckpoint::load_state(const State& saved) {
  saved_files_ = SavedFiles();
  point_ = SavePoint();
  const std::string saved_in = saved.get<std::string>("dirpath");
  if (saved_in != dirpath_ || !is_inside(continued_path_, dirpath_)) return remember_best_of_others(saved, saved_in);
  saved_files_.best_path = own_path(saved.get<std::string>("best_model_path"));
  saved_files_.best_score = saved.get<std::optional<double>>("best_model_score");
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
  std::string key = "ModelCheckpoint(monitor=" + options_.monitor + ", mode=" + enum_word(options_.mode) +
                    ", every_n_epochs=" + std::to_string(every_n_epochs_) +
                    ", every_n_train_steps=" + std::to_string(every_n_train_steps_);
  if (options_.train_time_interval) key += ", train_time_interval=" + duration_text(*options_.train_time_interval);
  return key + ")";
}

}  // namespace levin
