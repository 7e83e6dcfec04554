#include "levin/callbacks/model_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "levin/callbacks/checkpoint_folder.h"
#include "levin/checkpoint/checkpoint_writer.h"
#include "levin/checkpoint/sharded_checkpoint.h"
#include "levin/core/files/files.h"
#include "levin/core/process/console.h"
#include "levin/core/storage/staging.h"
#include "levin/trainer/measured_metrics.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

ModelCheckpointOptions checked_options(ModelCheckpointOptions options) {
  Problems problems;
  check_options(options, "ModelCheckpointOptions", problems);
  const bool by_steps = options.every_n_train_steps.value_or(0) > 0;
  const bool by_time = options.train_time_interval.has_value();
  const bool by_epochs = options.every_n_epochs.value_or(0) > 0;
  if (by_steps + by_time + by_epochs + options.every.has_value() > 1) {
    problems.add({}, "ModelCheckpointOptions",
                 "every, every_n_train_steps, train_time_interval and every_n_epochs exclude each other. Use one, and "
                 "a second ModelCheckpoint for another.");
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

// Replaces NaN by the worst value, so that any number is better.
double comparable(double score, MonitorMode mode) {
  if (!std::isnan(score)) return score;
  return mode == MonitorMode::min ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
}

constexpr const char* kLast = "last";

using Scored = std::pair<std::string, double>;

// Among equal scores, the file written first, as in Lightning.
std::vector<Scored>::const_iterator best_of(const std::vector<Scored>& files, MonitorMode mode) {
  return std::min_element(files.begin(), files.end(),
                          [mode](const Scored& a, const Scored& b) { return is_better(mode, a.second, b.second); });
}

std::vector<Scored>::const_iterator worst_of(const std::vector<Scored>& files, MonitorMode mode) {
  return std::min_element(files.begin(), files.end(),
                          [mode](const Scored& a, const Scored& b) { return is_better(mode, b.second, a.second); });
}

// Removes the worst until `kept` are left: several if save_top_k is smaller than in the run that is continued.
std::vector<std::string> take_worst(std::vector<Scored>& files, int64_t kept, MonitorMode mode) {
  std::vector<std::string> taken;
  while (static_cast<int64_t>(files.size()) > kept) {
    const auto worst = worst_of(files, mode);
    taken.push_back(worst->first);
    files.erase(worst);
  }
  return taken;
}

}  // namespace

ModelCheckpoint::ModelCheckpoint(ModelCheckpointOptions options)
    : options_(checked_options(std::move(options))),
      name_(options_.filename.empty() ? "{epoch}-{step}" : options_.filename, options_.auto_insert_metric_name) {
  every_n_train_steps_ = options_.every_n_train_steps.value_or(0);
  train_time_interval_ = options_.train_time_interval;
  const bool other_trigger = options_.every_n_train_steps || options_.train_time_interval || options_.every;
  every_n_epochs_ = options_.every_n_epochs.value_or(other_trigger ? 0 : 1);
}

bool ModelCheckpoint::wants_last() const {
  return !std::holds_alternative<bool>(options_.save_last) || std::get<bool>(options_.save_last);
}

bool ModelCheckpoint::last_is(const char* word) const {
  const auto* given = std::get_if<std::string>(&options_.save_last);
  return given != nullptr && *given == word;
}

// ---- when -----------------------------------------------------------------------------------------------------------

void ModelCheckpoint::setup(Trainer& trainer, LightningModule&, Stage) {
  const fs::path folder =
      options_.dirpath.empty() ? fs::path(trainer.log_dir()) / "checkpoints" : fs::path(staged(options_.dirpath));
  // Absolute, so that a change of the working directory has no effect.
  dirpath_ = absolute_path(folder.string());
  if (dirpath_.size() > 1 && dirpath_.back() == '/') dirpath_.pop_back();
  waits_for_validation_ = finishes_point_ = has_saved_ = failing_ = false;
}

// Expresses the period by one of the other triggers if possible.
void ModelCheckpoint::use_period(const Trainer& trainer) {
  if (!options_.every) return;
  const Period period = trainer.resolve_period(*options_.every, "ModelCheckpointOptions.every");
  if (period.unit() == PeriodUnit::time) {
    train_time_interval_ = Seconds(period.amount());
  } else if (period.whole_epochs() > 0) {
    every_n_epochs_ = period.whole_epochs();
  } else {
    period_ = period;
  }
}

void ModelCheckpoint::on_fit_start(Trainer& trainer, LightningModule&) {
  use_period(trainer);
  if (trainer.plan().fast_dev_run) return;
  finish_save_point(trainer);
  // The run was killed after it had continued from a stop, but before the stop's checkpoint was removed.
  const bool got_over = trainer.auto_resumes() && !trainer.ckpt_path().empty();
  if (got_over && !is_same_file(trainer.ckpt_path(), interrupted_path()) && may_remove(trainer, interrupted_path())) {
    (void)remove_checkpoint(interrupted_path());
  }
  check_folder(trainer);
}

void ModelCheckpoint::on_train_start(Trainer& trainer, LightningModule&) {
  step_seen_ = trainer.global_step();
  if (last_step_saved_ > step_seen_) last_step_saved_ = 0;  // from another trainer's fit
  if (last_step_of_last_ > step_seen_) last_step_of_last_ = 0;
  time_of_save_ = std::chrono::steady_clock::now();
  training_ = true;
  if (options_.save_top_k != 0) expect_metric(trainer, "ModelCheckpoint", options_.monitor);
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

// Whether checkpoints can be compared now: the monitor has a value for the weights that would be saved. Lightning
// compares by the value that there is, which may be of earlier weights.
bool ModelCheckpoint::can_judge(Trainer& trainer) const {
  return options_.monitor.empty() || options_.save_top_k == 0 || are_measured_now(trainer, {options_.monitor});
}

bool ModelCheckpoint::batch_is_due(Trainer& trainer, bool stepped) {
  if (period_) return trainer.completes(*period_);
  if (!train_time_interval_) return stepped && trainer.global_step() % every_n_train_steps_ == 0;
  const auto now = std::chrono::steady_clock::now();
  const bool due = trainer.strategy().ranks().any(now - time_of_save_ >= *train_time_interval_);
  if (due) time_of_save_ = now;
  return due;
}

void ModelCheckpoint::on_train_batch_end(Trainer& trainer, LightningModule&, const at::Tensor&, const Batch&, int64_t) {
  if (every_n_train_steps_ == 0 && !train_time_interval_ && !period_) return;
  const bool stepped = std::exchange(step_seen_, trainer.global_step()) != trainer.global_step();
  if (must_not_save(trainer)) return;
  const bool due = batch_is_due(trainer, stepped);
  if (!due && !waits_for_validation_) return;
  const bool follows = validation_follows(trainer);
  std::vector<std::string> shown = name_.metrics();
  if (!options_.monitor.empty()) shown.push_back(options_.monitor);
  if (follows && !are_measured_now(trainer, shown)) {
    waits_for_validation_ = true;
  } else {
    save_or_wait(trainer, /*saves_last=*/due && !follows);
  }
}

void ModelCheckpoint::on_validation_end(Trainer& trainer, LightningModule&) {
  if (must_not_save(trainer)) return;
  const bool due = !saves_on_train_epoch_end(trainer) && epoch_is_due(trainer);
  if (due || waits_for_validation_) save_or_wait(trainer, /*saves_last=*/due);
}

void ModelCheckpoint::on_train_epoch_end(Trainer& trainer, LightningModule&) {
  if (must_not_save(trainer)) return;
  const bool due = saves_on_train_epoch_end(trainer) && epoch_is_due(trainer);
  if (due || waits_for_validation_) save_or_wait(trainer, /*saves_last=*/true);
}

// A save that is due waits until the monitor is measured for the weights of that moment, which are then saved; the
// newest state is saved meanwhile.
void ModelCheckpoint::save_or_wait(Trainer& trainer, bool saves_last) {
  waits_for_validation_ = !can_judge(trainer);
  if (!waits_for_validation_) return save_point(trainer, trainer.current_epoch());
  if (!measured_at(trainer, options_.monitor) && !may_still_be_measured(trainer)) {
    throw Error(missing_metric_text(trainer, "ModelCheckpoint", options_.monitor) + " Call log(\"" + options_.monitor +
                "\", …) in validation_step or training_step, or set .monitor.");
  }
  const bool last_is_due = wants_last() && !last_is("with_top_k") && last_step_of_last_ != trainer.global_step();
  if (!saves_last || !last_is_due) return;
  finish_saves(trainer);
  request_last(trainer, {});
}

// Writes last.ckpt, and then removes `obsolete` and the file that it replaces.
void ModelCheckpoint::request_last(Trainer& trainer, std::vector<std::string> obsolete) {
  std::string replaced;
  const int64_t before = last_step_of_last_;
  const std::string previous = saved_files_.last_path;
  const std::string path = choose_last(trainer, replaced);
  point_ = {trainer.seen_batches(), {path}, {}};
  if (!replaced.empty() && may_remove(trainer, replaced)) point_.removed = {replaced};
  obsolete.insert(obsolete.end(), point_.removed.begin(), point_.removed.end());
  request(trainer, path, "", std::move(obsolete), [this, before, previous] {
    last_step_of_last_ = before;
    saved_files_.last_path = previous;
  });
}

void ModelCheckpoint::on_train_end(Trainer& trainer, LightningModule&) {
  training_ = false;
  if (trainer.plan().fast_dev_run) return;
  finish_saves(trainer);
  save_what_would_be_lost(trainer);
  std::vector<std::string> goes;  // of a stop that the run has continued from
  const bool keeps_no_state = options_.save_weights_only && trainer.auto_resumes();  // it would start over
  if (!keeps_no_state && may_remove(trainer, interrupted_path())) goes.push_back(interrupted_path());
  if (options_.save_top_k > 0) {
    for (std::string& path : take_worst(saved_files_.best, options_.save_top_k, options_.mode)) {
      if (may_remove(trainer, path)) goes.push_back(std::move(path));
    }
  }
  const bool last_is_due = wants_last() && !last_is("with_top_k") && last_step_of_last_ != trainer.global_step();
  if (!last_is_due && !must_keep_end(trainer)) {
    for (const std::string& path : goes) (void)remove_checkpoint(path);
    return;
  }
  request_last(trainer, std::move(goes));
}

void ModelCheckpoint::on_exception(Trainer& trainer, LightningModule&, const std::exception& error) {
  const bool was_training = std::exchange(training_, false);
  if (dynamic_cast<const Interrupted*>(&error) != nullptr) return;  // the stop has saved
  if (!options_.save_on_exception || !was_training || must_not_save(trainer)) return;
  failing_ = true;
  const std::string name = name_.format(metrics_of(trainer, trainer.current_epoch()));
  const std::string path = free_path(trainer, name, "", /*is_last=*/false);
  point_ = {trainer.seen_batches(), {path}, {}};
  request(trainer, path, "", {}, [] {});
  std::string obsolete;
  if (!wants_last()) return;
  point_.written.push_back(choose_last(trainer, obsolete));
  request(trainer, point_.written.back(), "", {}, [] {});
}

// A name shows no value of other weights, but "nan". Lightning shows the newest value, or 0 before there is one.
Metrics ModelCheckpoint::metrics_of(const Trainer& trainer, int64_t epoch) const {
  Metrics metrics = trainer.callback_metrics();
  for (const std::string& shown : name_.metrics()) {
    const auto measured = measured_at(trainer, shown);
    const bool is_known = measured || may_still_be_measured(trainer);
    if (is_known && measured != trainer.seen_batches()) metrics[shown] = std::numeric_limits<double>::quiet_NaN();
  }
  metrics["epoch"] = static_cast<double>(epoch);
  metrics["step"] = static_cast<double>(trainer.global_step());
  return metrics;
}

// A run that max_steps or max_time ends before its first save point: Lightning saves nothing. With save_top_k: 0 and
// save_last: with_top_k no save point writes a file, and as in Lightning last.ckpt is written here.
void ModelCheckpoint::save_what_would_be_lost(Trainer& trainer) {
  const bool wants_files = options_.save_top_k != 0 || wants_last();
  if (has_saved_ || !wants_files || must_not_save(trainer) || trainer.seen_batches() == 0) return;
  if (options_.save_top_k == 0 && last_is("with_top_k")) return request_last(trainer, {});
  if (can_judge(trainer)) {
    return save_point(trainer, std::max<int64_t>(0, trainer.current_epoch() - 1));  // the one that has just ended
  }
  std::string obsolete;
  const std::string path = choose_last(trainer, obsolete);
  const char* never = measured_at(trainer, options_.monitor) ? "\" was measured again" : "\" was logged";
  Console::instance().warn("ModelCheckpoint: the run ended before \"" + options_.monitor + never +
                           ", so its only checkpoint is " + path + ".");
  request(trainer, path, "", {}, [] {});
}

// With auto_resume a run that has ended trains nothing more when it is started again, so there must be a checkpoint of
// its end: with a monitor the newest one may be of an earlier epoch. A newer checkpoint replaces it (save_point).
bool ModelCheckpoint::must_keep_end(const Trainer& trainer) const {
  const bool keeps_states = options_.save_top_k != 0 && !options_.save_weights_only && !wants_last();
  const bool is_saved = trainer.state_is_saved() && !is_only_where_it_goes(trainer);
  return trainer.auto_resumes() && keeps_states && trainer.seen_batches() > 0 && !is_saved;
}

// Lightning updates last.ckpt only when a top-k file is saved, so it becomes stale when the monitor stops improving;
// here it is updated at every save point and at the end of training, because runs resume from "last".
void ModelCheckpoint::save_point(Trainer& trainer, int64_t epoch) {
  finish_saves(trainer);  // an earlier failure is handled first
  const Metrics metrics = metrics_of_rank_zero(trainer, metrics_of(trainer, epoch));
  const SavedFiles before = saved_files_;
  const int64_t step_before = last_step_saved_;
  const int64_t last_before = last_step_of_last_;
  std::vector<std::string> obsolete;
  std::string obsolete_last;
  const std::string top_k = choose_top_k(trainer, metrics, obsolete);
  const bool last_is_due = wants_last() && (!top_k.empty() || !last_is("with_top_k"));
  const std::string last = last_is_due ? choose_last(trainer, obsolete_last) : "";
  if (!top_k.empty() && !wants_last()) obsolete_last = std::exchange(saved_files_.last_path, "");  // must_keep_end
  if (top_k.empty() && last.empty()) {
    saved_files_.best = before.best;  // nothing goes before something else is written
    return;
  }
  has_saved_ = true;
  last_step_saved_ = trainer.global_step();
  point_ = {trainer.seen_batches(), {}, {}};
  for (const std::string& path : {top_k, last}) {
    if (!path.empty()) point_.written.push_back(path);
  }
  obsolete.push_back(obsolete_last);
  for (const std::string& path : obsolete) {
    if (!path.empty() && may_remove(trainer, path)) point_.removed.push_back(path);
  }
  // Obsolete files are removed once the last new file is on disk. The checkpoint of a stop is then obsolete too, unless
  // the new file holds weights only; it is not recorded, so that a run that was stopped saves the same as a run that
  // was not.
  std::vector<std::string> goes = point_.removed;
  if (!options_.save_weights_only && may_remove(trainer, interrupted_path())) goes.push_back(interrupted_path());
  if (!top_k.empty()) {
    request(trainer, top_k, "", last.empty() ? goes : std::vector<std::string>{}, [this, before, step_before] {
      const std::string now = wants_last() ? saved_files_.last_path : before.last_path;
      saved_files_ = before;
      saved_files_.last_path = now;
      last_step_saved_ = step_before;
    });
  }
  if (!last.empty()) {
    const bool link = last_is("link") && !top_k.empty();
    request(trainer, last, link ? top_k : "", goes, [this, before, last_before, alone = top_k.empty()] {
      if (alone) saved_files_.best = before.best;
      saved_files_.last_path = before.last_path;
      last_step_of_last_ = last_before;
    });
  }
}

std::string ModelCheckpoint::choose_top_k(Trainer& trainer, const Metrics& metrics,
                                          std::vector<std::string>& obsolete) {
  if (options_.save_top_k == 0) return "";
  if (options_.monitor.empty()) return choose_newest(trainer, metrics, obsolete);
  if (const auto found = metrics.find(options_.monitor); found != metrics.end()) {
    return choose_if_among_best(trainer, metrics, found->second, obsolete);
  }
  return "";
}

std::string ModelCheckpoint::choose_newest(Trainer& trainer, const Metrics& metrics,
                                           std::vector<std::string>& obsolete) {
  const bool replaces = options_.save_top_k == 1;
  const std::string before = saved_files_.best_path;
  saved_files_.best_path = free_path(trainer, name_.format(metrics), replaces ? before : "", /*is_last=*/false);
  if (replaces && before != saved_files_.best_path) obsolete = {before};
  return saved_files_.best_path;
}

std::string ModelCheckpoint::choose_if_among_best(Trainer& trainer, const Metrics& metrics, double score,
                                                  std::vector<std::string>& obsolete) {
  if (options_.save_top_k > 0) obsolete = take_worst(saved_files_.best, options_.save_top_k, options_.mode);
  const bool full = options_.save_top_k > 0 && static_cast<int64_t>(saved_files_.best.size()) >= options_.save_top_k;
  const bool enters = !full || is_better(options_.mode, score, worst_of(saved_files_.best, options_.mode)->second);
  if (!enters) return "";
  std::string replaced;
  if (full) {
    replaced = take_worst(saved_files_.best, options_.save_top_k - 1, options_.mode)[0];
    obsolete.push_back(replaced);
  }
  const std::string path = free_path(trainer, name_.format(metrics), replaced, /*is_last=*/false);
  std::erase_if(saved_files_.best,
                [&](const Scored& file) { return file.first == path; });  // overwritten without a counter
  saved_files_.best.emplace_back(path, comparable(score, options_.mode));
  const auto best = best_of(saved_files_.best, options_.mode);
  const bool has_best_of_others = saved_files_.best_score && name_within(saved_files_.best_path, dirpath_).empty() &&
                                  !saved_files_.best_path.empty();
  if (!has_best_of_others || is_better(options_.mode, best->second, *saved_files_.best_score)) {
    saved_files_.best_path = best->first;
    saved_files_.best_score = best->second;
  }
  std::erase(obsolete, path);
  return path;
}

std::string ModelCheckpoint::choose_last(Trainer& trainer, std::string& obsolete) {
  const std::string previous = saved_files_.last_path;
  saved_files_.last_path = free_path(trainer, kLast, previous, /*is_last=*/true);
  last_step_of_last_ = trainer.global_step();
  if (previous != saved_files_.last_path) obsolete = previous;
  return saved_files_.last_path;
}

}  // namespace levin
