#include "levin/callbacks/model_checkpoint.h"

#include <ATen/ops/scalar_tensor.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "levin/core/console.h"
#include "levin/core/files.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

constexpr const char* kSuffix = ".ckpt";
constexpr const char* kLast = "last";

ModelCheckpointOptions checked_options(ModelCheckpointOptions options) {
  Problems problems;
  check_options(options, "ModelCheckpointOptions", problems);
  const bool by_steps = options.every_n_train_steps.value_or(0) > 0;
  const bool by_time = options.train_time_interval.has_value();
  const bool by_epochs = options.every_n_epochs.value_or(0) > 0;
  if (by_steps + by_time + by_epochs > 1) {
    problems.add({}, "ModelCheckpointOptions",
                 "every_n_train_steps, train_time_interval and every_n_epochs exclude each other. Use one, and another "
                 "ModelCheckpoint for the other.");
  }
  if (options.monitor.empty() && options.save_top_k > 1) {
    problems.add(
        {}, "ModelCheckpointOptions.save_top_k",
        std::to_string(options.save_top_k) +
            " of the best need a metric to be judged by. Set .monitor, or use 1 (the newest), -1 (all) or 0 (none).");
  }
  problems.throw_if_any();
  return options;
}

// The worst value there is stands for NaN, so that any number replaces it.
double comparable(double score, MonitorMode mode) {
  if (!std::isnan(score)) return score;
  return mode == MonitorMode::min ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
}

using Scored = std::pair<std::string, double>;

// Of equals the one written first, as in Lightning.
std::vector<Scored>::const_iterator best_of(const std::vector<Scored>& files, MonitorMode mode) {
  return std::min_element(files.begin(), files.end(),
                          [mode](const Scored& a, const Scored& b) { return is_better(mode, a.second, b.second); });
}

std::vector<Scored>::const_iterator worst_of(const std::vector<Scored>& files, MonitorMode mode) {
  return std::min_element(files.begin(), files.end(),
                          [mode](const Scored& a, const Scored& b) { return is_better(mode, b.second, a.second); });
}

bool is_inside(const std::string& path, const std::string& folder) {
  const std::string prefix = (fs::path(folder) / "").string();
  return path.starts_with(prefix);
}

}  // namespace

ModelCheckpoint::ModelCheckpoint(ModelCheckpointOptions options)
    : options_(checked_options(std::move(options))),
      name_(options_.filename.empty() ? "{epoch}-{step}" : options_.filename, options_.auto_insert_metric_name) {
  every_n_train_steps_ = options_.every_n_train_steps.value_or(0);
  const bool other_trigger = options_.every_n_train_steps || options_.train_time_interval;
  every_n_epochs_ = options_.every_n_epochs.value_or(other_trigger ? 0 : 1);
}

bool ModelCheckpoint::wants_last() const {
  return !std::holds_alternative<bool>(options_.save_last) || std::get<bool>(options_.save_last);
}

// ---- when
// ----------------------------------------------------------------------------------------------------------------

void ModelCheckpoint::setup(Trainer& trainer, LightningModule&, Stage) {
  const fs::path folder =
      options_.dirpath.empty() ? fs::path(trainer.log_dir()) / "checkpoints" : fs::path(options_.dirpath);
  // Absolute, so that a change of the working folder changes nothing.
  dirpath_ = fs::absolute(folder).lexically_normal().string();
  if (dirpath_.size() > 1 && dirpath_.back() == '/') dirpath_.pop_back();
}

void ModelCheckpoint::on_train_start(Trainer&, LightningModule&) {
  time_of_save_ = std::chrono::steady_clock::now();
  waits_for_validation_ = validated_ = false;
  training_ = true;
}

bool ModelCheckpoint::must_not_save(const Trainer& trainer) const {
  return trainer.plan().fast_dev_run || trainer.stage() != Stage::fit || trainer.sanity_checking() ||
         last_step_saved_ == trainer.global_step();
}

bool ModelCheckpoint::saves_on_train_epoch_end(const Trainer& trainer) const {
  return options_.save_on_train_epoch_end.value_or(trainer.validates_only_at_epoch_end() || !trainer.has_validation());
}

bool ModelCheckpoint::epoch_is_due(const Trainer& trainer) const {
  return every_n_epochs_ > 0 && (trainer.current_epoch() + 1) % every_n_epochs_ == 0;
}

// A monitor that only validation logs is not there yet, or stale, when the step that is due comes just before one.
bool ModelCheckpoint::must_wait_for_validation(const Trainer& trainer, const Metrics& metrics) const {
  if (options_.monitor.empty() || !trainer.has_validation()) return false;
  if (!metrics.contains(options_.monitor)) return true;
  const auto& every = trainer.plan().check_val_every_n_epoch;
  return trainer.is_last_batch() && (!every || (trainer.current_epoch() + 1) % *every == 0);
}

void ModelCheckpoint::on_train_batch_end(Trainer& trainer, LightningModule&, const at::Tensor&, const Batch&, int64_t) {
  if (every_n_train_steps_ == 0 && !options_.train_time_interval) return;
  if (must_not_save(trainer)) return;
  bool due = every_n_train_steps_ > 0 && trainer.global_step() % every_n_train_steps_ == 0;
  if (options_.train_time_interval) {
    const auto now = std::chrono::steady_clock::now();
    due = trainer.strategy().any(now - time_of_save_ >= *options_.train_time_interval);
    if (due) time_of_save_ = now;
  }
  if (!due) return;
  if (must_wait_for_validation(trainer, trainer.callback_metrics())) {
    waits_for_validation_ = true;
    return;
  }
  save_point(trainer, true);
}

void ModelCheckpoint::on_validation_end(Trainer& trainer, LightningModule&) {
  if (trainer.stage() != Stage::fit || trainer.sanity_checking()) return;
  validated_ = true;
  if (must_not_save(trainer)) return;
  if (std::exchange(waits_for_validation_, false)) {
    save_point(trainer, true);
  } else if (!saves_on_train_epoch_end(trainer) && epoch_is_due(trainer)) {
    save_point(trainer, true);
  }
}

void ModelCheckpoint::on_train_epoch_end(Trainer& trainer, LightningModule&) {
  if (must_not_save(trainer)) return;
  const bool waited_in_vain = std::exchange(waits_for_validation_, false);
  if (waited_in_vain || (saves_on_train_epoch_end(trainer) && epoch_is_due(trainer))) save_point(trainer, true);
}

void ModelCheckpoint::on_train_end(Trainer& trainer, LightningModule&) {
  training_ = false;
  if (trainer.plan().fast_dev_run || !wants_last() || last_step_of_last_ == trainer.global_step()) return;
  save_last(trainer, "");
}

void ModelCheckpoint::on_exception(Trainer& trainer, LightningModule&, const std::exception&) {
  const bool was_training = std::exchange(training_, false);
  if (!options_.save_on_exception || !was_training || must_not_save(trainer)) return;
  const std::string path = free_path(trainer, name_.format(metrics_of(trainer)), "");
  if (write(trainer, path) && wants_last()) save_last(trainer, path);
}

// ---- what
// ----------------------------------------------------------------------------------------------------------------

Metrics ModelCheckpoint::metrics_of(const Trainer& trainer) const {
  Metrics metrics = trainer.callback_metrics();
  metrics["epoch"] = static_cast<double>(trainer.current_epoch());
  metrics["step"] = static_cast<double>(trainer.global_step());
  return metrics;
}

// Lightning: last.ckpt is refreshed only where a top-k file was saved, so it goes stale when the monitor stops
// improving; here: at every save point and at the end of training, because "last" is what a run continues from.
void ModelCheckpoint::save_point(Trainer& trainer, bool top_k_is_due) {
  const Metrics metrics = metrics_of(trainer);
  std::string obsolete;
  std::string saved;
  if (top_k_is_due) saved = save_top_k(trainer, metrics, obsolete);
  if (wants_last()) save_last(trainer, saved);
  if (!obsolete.empty()) remove(trainer, obsolete);
}

std::string ModelCheckpoint::save_top_k(Trainer& trainer, const Metrics& metrics, std::string& obsolete) {
  if (options_.save_top_k == 0) return "";
  if (options_.monitor.empty()) return save_newest(trainer, metrics, obsolete);
  if (const auto found = metrics.find(options_.monitor); found != metrics.end()) {
    return save_if_among_best(trainer, metrics, found->second, obsolete);
  }
  const std::string what =
      missing_metric_text("ModelCheckpoint", options_.monitor, trainer, trainer.callback_metrics());
  if (validated_ || !trainer.has_validation()) {
    throw Error(what + " Call log(\"" + options_.monitor +
                "\", …) in validation_step or training_step, or set .monitor.");
  }
  Console::instance().warn(what + " Nothing is saved until it is.");
  return "";
}

std::string ModelCheckpoint::save_newest(Trainer& trainer, const Metrics& metrics, std::string& obsolete) {
  const Kept before = kept_;
  const bool replaces = options_.save_top_k == 1;
  const std::string path = free_path(trainer, name_.format(metrics), replaces ? kept_.best_path : "");
  kept_.best_path = path;
  if (!write(trainer, path)) {
    kept_ = before;
    return "";
  }
  if (replaces && before.best_path != path) obsolete = before.best_path;
  return path;
}

std::string ModelCheckpoint::save_if_among_best(Trainer& trainer, const Metrics& metrics, double score,
                                                std::string& obsolete) {
  const Kept before = kept_;
  const bool full = options_.save_top_k > 0 && static_cast<int64_t>(kept_.best.size()) >= options_.save_top_k;
  const bool enters = !full || is_better(options_.mode, score, worst_of(kept_.best, options_.mode)->second);
  if (trainer.strategy().any(!enters)) return "";  // ranks whose own values differ must agree
  std::string replaced;
  if (full) {
    const auto worst = worst_of(kept_.best, options_.mode);
    replaced = worst->first;
    kept_.best.erase(worst);
  }
  const std::string path = free_path(trainer, name_.format(metrics), replaced);
  std::erase_if(kept_.best, [&](const Scored& file) { return file.first == path; });  // overwritten without a counter
  kept_.best.emplace_back(path, comparable(score, options_.mode));
  const auto best = best_of(kept_.best, options_.mode);
  kept_.best_path = best->first;
  kept_.best_score = best->second;
  if (!write(trainer, path)) {
    kept_ = before;
    return "";
  }
  if (replaced != path) obsolete = replaced;
  return path;
}

void ModelCheckpoint::save_last(Trainer& trainer, const std::string& just_saved) {
  const std::string previous = kept_.last_path;
  const std::string path = free_path(trainer, kLast, previous);
  kept_.last_path = path;
  const bool link = std::holds_alternative<std::string>(options_.save_last) && !just_saved.empty();
  if (!(link ? write_link(trainer, path, just_saved) : write(trainer, path))) {
    kept_.last_path = previous;
    return;
  }
  last_step_of_last_ = trainer.global_step();
  if (!previous.empty() && previous != path) remove(trainer, previous);
}

// ---- files
// ---------------------------------------------------------------------------------------------------------------

// `own`: a file that may be overwritten because it gives way anyhow. Rank 0 looks; all ranks learn the number.
std::string ModelCheckpoint::free_path(Trainer& trainer, const std::string& stem, const std::string& own) const {
  auto numbered = [&](int64_t version) {
    const std::string counter = version == 0 ? "" : "-v" + std::to_string(version);
    return (fs::path(dirpath_) / (stem + counter + kSuffix)).string();
  };
  int64_t version = 0;
  if (options_.enable_version_counter && trainer.global_rank() == 0) {
    while (numbered(version) != own && fs::exists(fs::symlink_status(numbered(version)))) ++version;
  }
  if (trainer.world_size() > 1) {
    const at::Tensor mine = at::scalar_tensor(version, at::TensorOptions(at::kLong).device(trainer.device()));
    version = trainer.strategy().reduce(mine, ReduceOp::max).item().toLong();
  }
  return numbered(version);
}

bool ModelCheckpoint::write(Trainer& trainer, const std::string& path) {
  try {
    if (trainer.global_rank() == 0) make_folder(fs::path(path).parent_path().string());
  } catch (const Error& error) {
    Console::instance().error(std::string("ModelCheckpoint: ") + error.what() + " Training goes on.");
    return false;
  }
  try {
    trainer.save_checkpoint(path, options_.save_weights_only);
  } catch (const CheckpointError& error) {
    Console::instance().error(std::string("ModelCheckpoint: ") + error.what() + " Training goes on.");
    return false;
  }
  last_step_saved_ = trainer.global_step();
  if (options_.verbose) {
    Console::instance().print("ModelCheckpoint: epoch " + std::to_string(trainer.current_epoch()) + ", step " +
                              std::to_string(trainer.global_step()) + ": saved " + path + ".");
  }
  return true;
}

// Made beside its place and renamed, so that there is a last.ckpt at any time. Relative: the folder may move.
bool ModelCheckpoint::write_link(Trainer& trainer, const std::string& path, const std::string& target) const {
  if (trainer.global_rank() != 0) return true;
  const std::string temporary = path + ".tmp-" + std::to_string(::getpid());
  std::error_code code;
  fs::remove(temporary, code);
  fs::create_symlink(fs::path(target).lexically_relative(fs::path(path).parent_path()), temporary, code);
  if (!code) fs::rename(temporary, path, code);
  if (!code) return true;
  Console::instance().error("ModelCheckpoint: cannot link " + path + " to " + target + ": " + code.message() +
                            ". Training goes on.");
  return false;
}

// Neither what lies outside the folder nor the file that the run continued from.
void ModelCheckpoint::remove(Trainer& trainer, const std::string& path) const {
  if (trainer.global_rank() != 0 || !is_inside(path, dirpath_)) return;
  std::error_code code;
  if (!trainer.ckpt_path().empty() && fs::equivalent(path, trainer.ckpt_path(), code)) return;
  fs::remove(path, code);
  if (code) Console::instance().warn("ModelCheckpoint: cannot remove " + path + ": " + code.message() + ".");
}

// Lightning: only last*.ckpt; here: without one the newest checkpoint of the folder.
std::string ModelCheckpoint::checkpoint_path(Trainer&, const std::string& which) {
  if (which == "best") return kept_.best_path;
  if (!kept_.last_path.empty() && fs::exists(kept_.last_path)) return kept_.last_path;
  std::string newest;
  std::pair<bool, fs::file_time_type> newest_rank{false, fs::file_time_type::min()};
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(dirpath_, code)) {
    const std::string name = entry.path().filename().string();
    std::error_code unreadable;
    const std::pair rank{name.starts_with(kLast), entry.last_write_time(unreadable)};
    if (unreadable || !name.ends_with(kSuffix) || !entry.is_regular_file(unreadable) || rank <= newest_rank) continue;
    newest = entry.path().string();
    newest_rank = rank;
  }
  return newest;
}

// ---- state
// ---------------------------------------------------------------------------------------------------------------

State ModelCheckpoint::state() const {
  State state;
  state.set("dirpath", dirpath_);
  state.set("best_model_path", kept_.best_path);
  state.set("best_model_score", kept_.best_score);
  state.set("last_model_path", kept_.last_path);
  ConfigNode best = ConfigNode::map();
  for (const auto& [path, score] : kept_.best) best.set(path, ValueType<double>::write(score));
  state.values.set("best_k_models", best);
  return state;
}

void ModelCheckpoint::load_state(const State& saved) {
  kept_ = Kept();
  kept_.best_path = saved.get<std::string>("best_model_path");
  kept_.best_score = saved.get<std::optional<double>>("best_model_score");
  if (saved.get<std::string>("dirpath") != dirpath_) {
    Console::instance().warn("ModelCheckpoint: the run was saved in " + saved.get<std::string>("dirpath") +
                             " and continues in " + dirpath_ +
                             ". The old files stay, and only the best of them is remembered.");
    return;
  }
  kept_.last_path = saved.get<std::string>("last_model_path");
  State best;
  best.values = saved.get<ConfigNode>("best_k_models");
  for (const auto& entry : best.values.entries) kept_.best.emplace_back(entry.key, best.get<double>(entry.key));
}

std::string ModelCheckpoint::state_key() const {
  std::string key = "ModelCheckpoint(monitor=" + options_.monitor + ", mode=" + enum_word(options_.mode) +
                    ", every_n_epochs=" + std::to_string(every_n_epochs_) +
                    ", every_n_train_steps=" + std::to_string(every_n_train_steps_);
  if (options_.train_time_interval) key += ", train_time_interval=" + duration_text(*options_.train_time_interval);
  return key + ")";
}

}  // namespace levin
