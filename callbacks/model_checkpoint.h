// Saves checkpoints while a fit runs: the newest, or the best by a metric, and the last.
//
//   .callbacks = {levin::ModelCheckpoint({.monitor = "val_loss", .save_last = true, .save_top_k = 3})}
//   trainer.fit(model, data, "last");
//
// Every save is collective; rank 0 names and removes files. Files are written in the background (async_save).
// Only files that this callback wrote are removed, and only after the new file is on disk. A file belongs to one
// callback: another callback of the run that wants its name takes the next one (best-v1.ckpt). A save that fails is
// reported, the old files stay, and training continues unless on_save_error says otherwise.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "levin/callbacks/checkpoint_folder.h"
#include "levin/callbacks/monitor.h"
#include "levin/core/options/fields.h"
#include "levin/core/options/units.h"
#include "levin/trainer/checkpoint_callback.h"

namespace levin {

/// What happens if a file cannot be written: warn and continue, or stop the run.
enum class OnSaveError { warn, stop };
template <>
struct EnumNames<OnSaveError> {
  static constexpr EnumName<OnSaveError> names[] = {{"warn", OnSaveError::warn}, {"stop", OnSaveError::stop}};
};

/// Options of ModelCheckpoint.
struct ModelCheckpointOptions {
  std::string dirpath = "";   // "": checkpoints/ in the first logger's folder, or in default_root_dir
  std::string filename = "";  // "": "{epoch}-{step}"
  std::string monitor = "";   // "": the newest is the best
  bool verbose = false;
  // "link": a link to the newest top-k file where there is one; "with_top_k": only when a top-k file is saved
  std::variant<bool, std::string> save_last = false;
  int64_t save_top_k = 1;  // -1: all; 0: none
  bool save_on_exception = false;
  bool save_weights_only = false;
  EnumOption<MonitorMode> mode = MonitorMode::min;
  bool auto_insert_metric_name = true;
  // At most one of the next four; none: every epoch.
  std::optional<Period> every = std::nullopt;
  std::optional<int64_t> every_n_train_steps = std::nullopt;  // optimizer steps
  std::optional<Seconds> train_time_interval = std::nullopt;
  std::optional<int64_t> every_n_epochs = std::nullopt;
  std::optional<bool> save_on_train_epoch_end = std::nullopt;
  bool enable_version_counter = true;
  bool async_save = true;
  EnumOption<OnSaveError> on_save_error = OnSaveError::warn;

  template <class = void>
  static auto fields() {
    using O = ModelCheckpointOptions;
    auto not_negative = [](const std::optional<int64_t>& n) { return !n || *n >= 0; };
    return levin::fields(
        field("dirpath", &O::dirpath,
              "folder of the files, or s3://bucket/folder; empty: checkpoints/ in the log folder"),
        field("filename", &O::filename,
              "name with {metric:.2f}, {epoch} and {step}; empty: {epoch}-{step}; a / makes a subfolder, and one in a "
              "metric's name becomes _"),
        field("monitor", &O::monitor, "the metric by which checkpoints are compared; empty: the newest is best"),
        field("verbose", &O::verbose, "print each save"),
        field("save_last", &O::save_last,
              "keep last.ckpt, always the newest state; link: as a link where possible; "
              "with_top_k: only when one of the best is saved, as Lightning does")
            .check(
                [](const std::variant<bool, std::string>& v) {
                  const auto* word = std::get_if<std::string>(&v);
                  return word == nullptr || *word == "link" || *word == "with_top_k";
                },
                "true, false, link or with_top_k"),
        field("save_top_k", &O::save_top_k, "keep this many of the best; -1: all, 0: none").min(-1),
        field("save_on_exception", &O::save_on_exception, "save when the run fails"),
        field("save_weights_only", &O::save_weights_only, "leave out what is needed to continue training"),
        field("mode", &O::mode, "whether a smaller or a larger monitor is better"),
        field("auto_insert_metric_name", &O::auto_insert_metric_name, "{v} becomes v=0.4 instead of 0.4"),
        field("every", &O::every,
              "save after each such period: 500ba (batches), 2ep (epochs), 30min, 0.1dur (fraction of the run)"),
        field("every_n_train_steps", &O::every_n_train_steps, "save after every n-th optimizer step; 0: not by steps")
            .check(not_negative, ">= 0"),
        field("train_time_interval", &O::train_time_interval, "save each time this much time has passed")
            .check([](const std::optional<Seconds>& t) { return !t || t->count() > 0; }, "> 0"),
        field("every_n_epochs", &O::every_n_epochs, "save in every n-th epoch; 0: not by epochs")
            .check(not_negative, ">= 0"),
        field(
            "save_on_train_epoch_end", &O::save_on_train_epoch_end,
            "save after the training epoch; false: after validation; unset: after the epoch if validation runs once at "
            "its end or not at all"),
        field("enable_version_counter", &O::enable_version_counter,
              "add -v1 to a name that is taken; false: overwrite, unless another callback of the run owns the file"),
        field("async_save", &O::async_save, "write in the background; false: training waits for the disk"),
        field("on_save_error", &O::on_save_error, "when a file cannot be written: warn and continue, or stop the run"));
  }
};

class RankCollectives;

/// A callback that saves and removes checkpoints in a fit. Throws ConfigError from the constructor for options that do
/// not go together, Error if .monitor is never logged, and CheckpointError if a file cannot be written and
/// on_save_error is stop. All hooks run on every rank, from the training thread; the accessors may be read there at any
/// time.
class ModelCheckpoint final : public Checkpoint {
 public:
  using Options = ModelCheckpointOptions;
  explicit ModelCheckpoint(Defaults = {}) : ModelCheckpoint(ModelCheckpointOptions()) {}
  explicit ModelCheckpoint(ModelCheckpointOptions options);

  void setup(Trainer& trainer, LightningModule&, Stage stage) override;
  void on_fit_start(Trainer& trainer, LightningModule&) override;
  void on_train_start(Trainer& trainer, LightningModule&) override;
  void on_train_batch_end(Trainer& trainer, LightningModule&, const at::Tensor&, const Batch&, int64_t) override;
  void on_validation_end(Trainer& trainer, LightningModule&) override;
  void on_train_epoch_end(Trainer& trainer, LightningModule&) override;
  void on_train_end(Trainer& trainer, LightningModule&) override;
  void on_exception(Trainer& trainer, LightningModule&, const std::exception&) override;
  void teardown(Trainer& trainer, LightningModule&, Stage stage) override;

  [[nodiscard]] bool is_monitoring() const override { return true; }
  [[nodiscard]] std::string checkpoint_path(Trainer& trainer, const std::string& which) override;
  [[nodiscard]] BestCheckpoint best_checkpoint() const override;

  void on_load_checkpoint(Trainer& trainer, LightningModule&, const State& checkpoint) override;
  [[nodiscard]] State state_dict() const override;
  void load_state_dict(const State& saved) override;
  [[nodiscard]] std::string state_key() const override;

  [[nodiscard]] const std::string& dirpath() const { return dirpath_; }
  /// "" before the first save.
  [[nodiscard]] const std::string& best_model_path() const { return saved_files_.best_path; }
  /// Unset without a monitor.
  [[nodiscard]] const std::optional<double>& best_model_score() const { return saved_files_.best_score; }
  [[nodiscard]] const std::string& last_model_path() const { return saved_files_.last_path; }
  /// Returns the best files with their scores, in the order they were written.
  [[nodiscard]] const std::vector<std::pair<std::string, double>>& best_k_models() const { return saved_files_.best; }
  /// Returns whether the file belongs to this callback: it keeps the file, or has requested it from the writer.
  [[nodiscard]] bool owns(const std::string& path) const;

 private:
  using Scored = std::pair<std::string, double>;

  /// The files that will exist when the writer is done. The list is part of every checkpoint, so it changes before a
  /// save, and is restored if the save fails.
  struct SavedFiles {
    std::vector<Scored> best = {};
    std::string best_path = "";  // may be in the folder that an earlier run saved in: it is kept, and never removed
    std::optional<double> best_score = std::nullopt;
    std::string last_path = "";
  };

  // Note [Save points]
  // The files that are written and removed at one point in time. Each written file holds this list, so a run that was
  // killed before the last of them was written, or before the old files were removed, does the rest when it resumes.
  struct SavePoint {
    int64_t batches = -1;  // Trainer::seen_batches
    std::vector<std::string> written = {};
    std::vector<std::string> removed = {};
  };

  // Note [Failed saves]
  // Only the rank that writes knows whether a save has failed, and all ranks must choose the next files alike: their
  // choices communicate. So with several ranks what was noted of a file is taken back once all know (finish_saves).
  struct OpenSave {
    std::function<void()> undo;  // null once it was called
    bool failed = false;
  };

  [[nodiscard]] bool saves_on_train_epoch_end(const Trainer& trainer) const;
  [[nodiscard]] bool must_not_save(const Trainer& trainer) const;
  [[nodiscard]] bool epoch_is_due(const Trainer& trainer) const;
  [[nodiscard]] bool batch_is_due(Trainer& trainer, bool stepped);
  void use_period(const Trainer& trainer);
  [[nodiscard]] bool can_judge(Trainer& trainer) const;
  [[nodiscard]] Metrics metrics_of(const Trainer& trainer, int64_t epoch) const;
  [[nodiscard]] std::string free_path(Trainer& trainer, const std::string& stem, const std::string& own,
                                      bool is_last) const;
  [[nodiscard]] bool is_taken(const Trainer& trainer, const std::string& path, const std::string& own,
                              bool is_last) const;
  /// Returns whether the run wrote the file after the checkpoint from which it now continues: it is written anew.
  [[nodiscard]] bool is_abandoned(const Trainer& trainer, const std::string& path) const;
  [[nodiscard]] bool wants_last() const;
  [[nodiscard]] bool last_is(const char* word) const;
  [[nodiscard]] std::string interrupted_path() const;

  /// Waits for the disk, and takes back what was noted of saves that failed on any rank. Blocks until all arrive.
  void finish_saves(Trainer& trainer);
  /// Saves, or waits for the monitor's next value; `saves_last`: meanwhile last.ckpt is written.
  void save_or_wait(Trainer& trainer, bool saves_last);
  void request_last(Trainer& trainer, std::vector<std::string> obsolete);
  /// One point in time at which files may be written.
  void save_point(Trainer& trainer, int64_t epoch);
  void save_what_would_be_lost(Trainer& trainer);
  [[nodiscard]] bool must_keep_end(const Trainer& trainer) const;
  [[nodiscard]] bool is_only_where_it_goes(const Trainer& trainer) const;
  /// Returns the path of the file that is due, or "" if none is; adds the files that it makes obsolete to `obsolete`.
  std::string choose_top_k(Trainer& trainer, const Metrics& metrics, std::vector<std::string>& obsolete);
  std::string choose_newest(Trainer& trainer, const Metrics& metrics, std::vector<std::string>& obsolete);
  std::string choose_if_among_best(Trainer& trainer, const Metrics& metrics, double score,
                                   std::vector<std::string>& obsolete);
  std::string choose_last(Trainer& trainer, std::string& obsolete);
  void request(Trainer& trainer, const std::string& path, const std::string& link_to, std::vector<std::string> obsolete,
               std::function<void()> undo);
  void report(const Trainer& trainer, const std::string& path, const std::string& error) const;
  [[nodiscard]] bool may_remove(Trainer& trainer, const std::string& path) const;
  void finish_save_point(Trainer& trainer);
  void check_folder(Trainer& trainer) const;
  // See Note [Claims of files].
  [[nodiscard]] std::string own_path(const std::string& claimed) const;
  [[nodiscard]] std::vector<std::string> own_paths(const std::vector<std::string>& claimed) const;
  [[nodiscard]] bool was_saved_by_this_run(const std::string& path) const;
  void find_files_of_others(const State& saved, RankCollectives* ranks);
  void remember_best_of_others(const State& saved);

  ModelCheckpointOptions options_;
  CheckpointName name_;
  int64_t every_n_train_steps_ = 0;
  int64_t every_n_epochs_ = 0;
  std::optional<Seconds> train_time_interval_ = std::nullopt;
  std::optional<Period> period_ = std::nullopt;  // in batches, or a fraction of an epoch or of the run
  std::string dirpath_ = "";
  SavedFiles saved_files_;
  SavePoint point_;
  std::vector<std::shared_ptr<OpenSave>> open_saves_ = {};  // since the last finish_saves
  int64_t last_step_saved_ = 0;                             // global step of the newest file
  int64_t last_step_of_last_ = 0;                           // global step of last.ckpt
  int64_t step_seen_ = 0;  // global step at the last batch: a save is due once, not in each batch of a window
  bool waits_for_validation_ = false;  // a save was due, and the monitor is not measured for its weights yet
  bool training_ = false;
  bool has_saved_ = false;          // in this fit, or in the one that it continues
  int64_t continued_batches_ = -2;  // of the checkpoint that is being loaded
  int64_t continued_step_ = 0;      // global step of the same
  std::string continued_path_ = "";
  RankCollectives* ranks_ = nullptr;  // from on_load_checkpoint to load_state_dict
  bool continues_ = false;            // a fit continues with it
  bool continues_own_file_ = false;   // it is in a folder of this run's checkpoint callbacks
  bool finishes_point_ = false;       // a save point from before a restart may be unfinished
  bool failing_ = false;              // an exception is propagating: the other ranks cannot be asked
  // The folders in which this run has saved, by the names that they had; empty unless the folder was renamed or moved.
  std::vector<std::string> former_dirpaths_ = {};
  std::string claimed_in_ = "";          // the folder in which the loaded checkpoint claims its files
  std::set<std::string> not_ours_ = {};  // claimed names that are other runs' files in this folder
  std::chrono::steady_clock::time_point time_of_save_ = {};
};

}  // namespace levin
