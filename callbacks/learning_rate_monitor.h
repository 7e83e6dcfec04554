// Logs the learning rates: lr-AdamW, lr-AdamW/pg1 and /pg2 for several groups, lr-AdamW-1 for a second
// optimizer of that name, or the scheduler's own name.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/trainer/callback.h"
#include "levin/trainer/metrics.h"

namespace levin {

/// When rows are written: at each logged step, or at each epoch.
enum class LoggingInterval { step, epoch };
template <>
struct EnumNames<LoggingInterval> {
  static constexpr EnumName<LoggingInterval> names[] = {{"step", LoggingInterval::step},
                                                        {"epoch", LoggingInterval::epoch}};
};

/// Options of LearningRateMonitor.
struct LearningRateMonitorOptions {
  std::optional<EnumOption<LoggingInterval>> logging_interval = std::nullopt;  // unset: when each scheduler steps
  bool log_momentum = false;
  bool log_weight_decay = false;

  template <class = void>
  static auto fields() {
    using O = LearningRateMonitorOptions;
    return levin::fields(field("logging_interval", &O::logging_interval,
                               "write at each logged step or each epoch; null: when the scheduler steps"),
                         field("log_momentum", &O::log_momentum, "write momentum (or the first beta) too"),
                         field("log_weight_decay", &O::log_weight_decay, "write the weight decay too"));
  }
};

/// A callback that logs the learning rate of every optimizer; optionally momentum and weight decay. Hooks run on every
/// rank; only rank 0 has loggers.
class LearningRateMonitor final : public Callback {
 public:
  using Options = LearningRateMonitorOptions;
  explicit LearningRateMonitor(Defaults = {}) : LearningRateMonitor(LearningRateMonitorOptions()) {}
  explicit LearningRateMonitor(LearningRateMonitorOptions options);

  void setup(Trainer&, LightningModule&, Stage) override { resumed_ = false; }
  /// Throws ConfigError if the trainer has no logger, and CheckpointError if a checkpoint is of other optimizers.
  void on_train_start(Trainer& trainer, LightningModule&) override;
  void on_train_epoch_start(Trainer& trainer, LightningModule&) override;
  void on_train_batch_start(Trainer& trainer, LightningModule&, const Batch&, int64_t) override;

  /// Returns the optimizers and schedulers that it watches, chosen when the run began.
  [[nodiscard]] State state_dict() const override;
  /// Throws CheckpointError if `saved` is incomplete.
  void load_state_dict(const State& saved) override;
  [[nodiscard]] std::string state_key() const override { return "LearningRateMonitor"; }

 private:
  struct Watched {
    size_t optimizer;
    std::string name;
    std::optional<bool> by_step;  // when its scheduler steps; unset: it has none
  };

  void watch_schedulers(Trainer& trainer);
  void write(Trainer& trainer, bool at_step) const;
  [[nodiscard]] bool wants(const Watched& watched, bool at_step) const;

  LearningRateMonitorOptions options_;
  std::vector<Watched> watched_ = {};
  bool resumed_ = false;    // watched_ is a checkpoint's
  int64_t last_step_ = -1;  // an accumulation window has one row, regardless of its number of batches
};

}  // namespace levin
