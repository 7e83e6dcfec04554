// Saves checkpoints while a fit runs: the newest, or the best by a metric, and the last.
//
//   .callbacks = {levin::ModelCheckpoint({.monitor = "val_loss", .save_last = true, .save_top_k = 3})}
//   trainer.fit(model, data, "last");
//
// All ranks take part in each save; rank 0 names and removes files. Only files that this callback wrote are removed,
// and only after the new file is on the disk. A save that fails is reported and training goes on.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "levin/callbacks/checkpoint_name.h"
#include "levin/callbacks/monitor.h"
#include "levin/core/duration.h"
#include "levin/core/fields.h"
#include "levin/trainer/callback.h"

namespace levin {

struct ModelCheckpointOptions {
  std::string dirpath = "";   // "": checkpoints/ in the first logger's folder, or in default_root_dir
  std::string filename = "";  // "": "{epoch}-{step}"
  std::string monitor = "";   // "": the newest is the best
  bool verbose = false;
  std::variant<bool, std::string> save_last = false;  // "link": a link to the newest top-k file where there is one
  int64_t save_top_k = 1;                             // -1: all; 0: none
  bool save_on_exception = false;
  bool save_weights_only = false;
  MonitorMode mode = MonitorMode::min;
  bool auto_insert_metric_name = true;
  // At most one of the next three; none: every epoch.
  std::optional<int64_t> every_n_train_steps = std::nullopt;  // optimizer steps
  std::optional<Seconds> train_time_interval = std::nullopt;
  std::optional<int64_t> every_n_epochs = std::nullopt;
  std::optional<bool> save_on_train_epoch_end = std::nullopt;
  bool enable_version_counter = true;

  static auto fields() {
    using O = ModelCheckpointOptions;
    auto not_negative = [](const std::optional<int64_t>& n) { return !n || *n >= 0; };
    return levin::fields(
        field("dirpath", &O::dirpath, "folder of the files; empty: checkpoints/ beside the logs"),
        field("filename", &O::filename, "name with {metric:.2f}, {epoch} and {step}; empty: {epoch}-{step}"),
        field("monitor", &O::monitor, "the metric that says which checkpoints are best; empty: the newest"),
        field("verbose", &O::verbose, "print each save"),
        field("save_last", &O::save_last, "keep last.ckpt, always the newest state; link: as a link where possible")
            .check(
                [](const std::variant<bool, std::string>& v) {
                  return std::holds_alternative<bool>(v) || std::get<std::string>(v) == "link";
                },
                "true, false or link"),
        field("save_top_k", &O::save_top_k, "keep so many of the best; -1: all, 0: none").min(-1),
        field("save_on_exception", &O::save_on_exception, "save when the run fails"),
        field("save_weights_only", &O::save_weights_only, "leave out what is needed to continue training"),
        field("mode", &O::mode, "whether a smaller or a larger monitor is better"),
        field("auto_insert_metric_name", &O::auto_insert_metric_name, "{v} becomes v=0.4 instead of 0.4"),
        field("every_n_train_steps", &O::every_n_train_steps, "save after every n-th optimizer step; 0: not by steps")
            .check(not_negative, ">= 0"),
        field("train_time_interval", &O::train_time_interval, "save when so much time has passed")
            .check([](const std::optional<Seconds>& t) { return !t || t->count() > 0; }, "> 0"),
        field("every_n_epochs", &O::every_n_epochs, "save in every n-th epoch; 0: not by epochs")
            .check(not_negative, ">= 0"),
        field(
            "save_on_train_epoch_end", &O::save_on_train_epoch_end,
            "save after the training epoch; false: after validation; unset: after the epoch if validation runs once at "
            "its end or not at all"),
        field("enable_version_counter", &O::enable_version_counter,
              "add -v1 to a name that is taken; false: overwrite"));
  }
};

class ModelCheckpoint final : public Callback {
 public:
  using Options = ModelCheckpointOptions;
  explicit ModelCheckpoint(ModelCheckpointOptions options = {});

  void setup(Trainer& trainer, LightningModule&, Stage stage) override;
  void on_train_start(Trainer& trainer, LightningModule&) override;
  void on_train_batch_end(Trainer& trainer, LightningModule&, const at::Tensor&, const Batch&, int64_t) override;
  void on_validation_end(Trainer& trainer, LightningModule&) override;
  void on_train_epoch_end(Trainer& trainer, LightningModule&) override;
  void on_train_end(Trainer& trainer, LightningModule&) override;
  void on_exception(Trainer& trainer, LightningModule&, const std::exception&) override;

  [[nodiscard]] bool is_monitoring() const override { return true; }
  [[nodiscard]] bool is_checkpoint() const override { return true; }
  [[nodiscard]] std::string checkpoint_path(Trainer& trainer, const std::string& which) override;

  [[nodiscard]] State state() const override;
  void load_state(const State& saved) override;
  [[nodiscard]] std::string state_key() const override;

  [[nodiscard]] const std::string& dirpath() const { return dirpath_; }
  /// "" before the first save.
  [[nodiscard]] const std::string& best_model_path() const { return kept_.best_path; }
  /// Unset without a monitor.
  [[nodiscard]] const std::optional<double>& best_model_score() const { return kept_.best_score; }
  [[nodiscard]] const std::string& last_model_path() const { return kept_.last_path; }
  /// The best files with their scores, in the order they were written.
  [[nodiscard]] const std::vector<std::pair<std::string, double>>& best_k_models() const { return kept_.best; }

 private:
  /// The files that are there. It is in every checkpoint, so it changes before a save and back if the save fails.
  struct Kept {
    std::vector<std::pair<std::string, double>> best = {};
    std::string best_path = "";
    std::optional<double> best_score = std::nullopt;
    std::string last_path = "";
  };

  [[nodiscard]] bool saves_on_train_epoch_end(const Trainer& trainer) const;
  [[nodiscard]] bool must_not_save(const Trainer& trainer) const;
  [[nodiscard]] bool epoch_is_due(const Trainer& trainer) const;
  [[nodiscard]] bool must_wait_for_validation(const Trainer& trainer, const Metrics& metrics) const;
  [[nodiscard]] Metrics metrics_of(const Trainer& trainer) const;
  [[nodiscard]] std::string free_path(Trainer& trainer, const std::string& stem, const std::string& own) const;

  /// One point in time at which files may be written.
  void save_point(Trainer& trainer, bool top_k_is_due);
  /// The file that was written, or "" if none was; `obsolete` is then the one whose place it takes, if any.
  std::string save_top_k(Trainer& trainer, const Metrics& metrics, std::string& obsolete);
  std::string save_newest(Trainer& trainer, const Metrics& metrics, std::string& obsolete);
  std::string save_if_among_best(Trainer& trainer, const Metrics& metrics, double score, std::string& obsolete);
  void save_last(Trainer& trainer, const std::string& just_saved);
  bool write(Trainer& trainer, const std::string& path);
  bool write_link(Trainer& trainer, const std::string& path, const std::string& target) const;
  void remove(Trainer& trainer, const std::string& path) const;
  [[nodiscard]] bool wants_last() const;

  ModelCheckpointOptions options_;
  CheckpointName name_;
  int64_t every_n_train_steps_ = 0;
  int64_t every_n_epochs_ = 0;
  std::string dirpath_ = "";
  Kept kept_;
  int64_t last_step_saved_ = 0;    // global step of the newest file
  int64_t last_step_of_last_ = 0;  // global step of last.ckpt
  bool waits_for_validation_ = false;
  bool validated_ = false;  // a validation has run in this fit
  bool training_ = false;
  std::chrono::steady_clock::time_point time_of_save_ = {};
};

}  // namespace levin
