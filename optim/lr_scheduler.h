// The interface of all learning-rate schedulers: attached to an optimizer, they set its groups' lr at each step().
//
//   SGD optimizer(model.parameters(), {.lr = 0.1});
//   StepLR scheduler(optimizer, {.step_size = 30});
//   …optimizer.step(); scheduler.step();
//
// The optimizer must outlive the scheduler and stay where it is. Every rank steps its own.
#pragma once

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/core/state.h"
#include "levin/optim/optimizer.h"

namespace levin {

/// One number for all groups, or one per group.
using FloatOrList = std::variant<double, std::vector<double>>;

/// The base of schedulers. A subclass implements name() and next_lr().
class LRScheduler : public Stateful {
 public:
  static const char* registry_name() { return "lr_scheduler"; }

  LRScheduler(const LRScheduler&) = delete;
  LRScheduler& operator=(const LRScheduler&) = delete;

  /// Returns the registered name: "StepLR".
  [[nodiscard]] virtual std::string name() const = 0;

  /// Returns the options it was created with, as in a run file, or null if they are unknown. Ranks compare them.
  [[nodiscard]] virtual ConfigNode written_options() const { return {}; }

  /// Attaches `optimizer` and sets the first learning rates. Throws Error if an optimizer is attached already.
  void attach(Optimizer& optimizer);
  [[nodiscard]] bool attached() const { return optimizer_ != nullptr; }
  /// Throws Error if none is attached.
  [[nodiscard]] Optimizer& optimizer() const;

  /// Sets the next learning rates. Throws Error if wants_metric().
  void step() { advance({}); }
  /// Same as above, with the metric that the scheduler follows; others ignore the metric.
  void step(double metric) { advance(metric); }
  [[nodiscard]] virtual bool wants_metric() const { return false; }

  /// Returns whether a trainer steps it after each optimizer step instead of each epoch, unless `interval` is set.
  [[nodiscard]] virtual bool counts_steps() const { return false; }

  /// Returns whether it needs the total number of steps and its options do not give it; then fill_total_steps() must be
  /// called before attach(). The trainer does that with the steps of the fit.
  [[nodiscard]] virtual bool wants_total_steps() const { return false; }
  virtual void fill_total_steps(int64_t /*steps*/) {}

  /// Returns the learning rates this scheduler set last, one per group.
  [[nodiscard]] const std::vector<double>& get_last_lr() const { return last_lr_; }
  [[deprecated("use get_last_lr()")]] [[nodiscard]] const std::vector<double>& last_lr() const { return last_lr_; }

  /// Steps taken since the start; -1 before attach().
  int64_t last_epoch = -1;

  /// Returns the state of the schedule. The learning rates themselves are in the optimizer's state: restore both.
  [[nodiscard]] State state_dict() const override { return Stateful::state_dict(); }
  /// Requires an attached optimizer. Throws CheckpointError if `saved` belongs to a different scheduler or has a
  /// different number of groups.
  void load_state_dict(const State& saved) override { Stateful::load_state_dict(saved); }

 protected:
  LRScheduler() = default;
  LRScheduler(LRScheduler&&) = default;
  LRScheduler& operator=(LRScheduler&&) = default;

  /// Returns the learning rates at last_epoch, computed from the rates at the step before.
  [[nodiscard]] virtual std::vector<double> next_lr() = 0;
  /// Returns the same rates from the initial rates alone, if there is a formula: for a schedule that starts in the
  /// middle.
  [[nodiscard]] virtual std::vector<double> closed_form() { return next_lr(); }
  /// Called by attach() before the first step; base_lrs_ is set.
  virtual void prepare() {}
  /// Does the second half of attach(), with the optimizer set.
  virtual void begin();
  /// Implements step().
  virtual void advance(std::optional<double> metric);
  /// Undoes the step made by attach(), for schedulers inside another.
  virtual void undo() { --last_epoch; }

  [[nodiscard]] State default_state_dict() const override;
  void load_default_state_dict(const State& saved) override;

  /// Fixes initial_lr of groups that no scheduler has touched; returns all of them.
  std::vector<double> fix_initial_lrs();
  void initial_step();
  /// Sets last_epoch to 0 and the learning rates to where the schedule starts; after undo().
  virtual void restart();
  void apply(const std::vector<double>& lrs);
  void note_lrs();
  /// Returns every group's lr times `factor`.
  [[nodiscard]] std::vector<double> scaled(double factor) const;
  /// `value` as one number per group. Throws Error naming `key` if the list has a different length.
  [[nodiscard]] std::vector<double> per_group(const FloatOrList& value, const std::string& key) const;
  [[noreturn]] void refuse_state(const std::string& why) const;

  bool is_initial_ = false;  // inside the step that attach() makes
  std::vector<double> base_lrs_;
  std::vector<double> last_lr_;

  friend class ComposedScheduler;
  friend class SequentialLR;
  friend class ChainedScheduler;

 private:
  Optimizer* optimizer_ = nullptr;
};

/// The base of schedulers made from the options struct O: a struct with fields() and the member `kName`, the class's
/// registered name. Levin's own are `extern template`, so that only one file compiles what is defined below the class.
template <class O>
class SchedulerOf : public LRScheduler {
 public:
  using Options = O;

  /// Attached later. Throws ConfigError for invalid options, such as the default ones if O has a required option.
  explicit SchedulerOf(Defaults = {}) : SchedulerOf(O()) {}
  explicit SchedulerOf(O options);

  [[nodiscard]] std::string name() const final { return O::kName; }
  [[nodiscard]] ConfigNode written_options() const final;

 protected:
  O options_;
};

template <class O>
SchedulerOf<O>::SchedulerOf(O options) : options_(checked(std::move(options), std::string(O::kName) + "Options")) {}

template <class O>
ConfigNode SchedulerOf<O>::written_options() const {
  return write_options(options_);
}

}  // namespace levin
