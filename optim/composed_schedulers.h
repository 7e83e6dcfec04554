// Schedulers composed of schedulers.
//
//   schedulers:                                     SequentialLR scheduler(optimizer,
//     - {class_path: LinearLR, init_args: {…}}          {std::make_shared<LinearLR>(…), std::make_shared<StepLR>(…)},
//     - {class_path: StepLR, init_args: {…}}            {500});
//   milestones: [500]
#pragma once

#include "levin/core/options/registry.h"
#include "levin/optim/lr_scheduler.h"

namespace levin {

using Schedulers = std::vector<std::shared_ptr<LRScheduler>>;

/// The base of both: their schedulers, with one state. load_state_dict() throws CheckpointError if `saved` has a
/// different number of schedulers.
class ComposedScheduler : public LRScheduler {
 public:
  [[nodiscard]] const Schedulers& schedulers() const { return schedulers_; }
  [[nodiscard]] bool counts_steps() const override;
  [[nodiscard]] bool wants_total_steps() const override;
  /// Returns the schedulers' options.
  [[nodiscard]] ConfigNode written_options() const override;

 protected:
  void undo() override;
  std::vector<double> next_lr() override { return scaled(1); }
  [[nodiscard]] State default_state_dict() const override;
  void load_default_state_dict(const State& saved) override;
  /// Attaches the parts that are not attached yet, in order. Throws Error if one has another optimizer.
  void attach_parts();

  Schedulers schedulers_;
};

/// Options of SequentialLR.
struct SequentialLROptions {
  std::vector<ClassSpec> schedulers = {};
  std::vector<int64_t> milestones = {};

  template <class = void>
  static auto fields() {
    return levin::fields(field("schedulers", &SequentialLROptions::schedulers, "one after the other").not_empty(),
                         field("milestones", &SequentialLROptions::milestones,
                               "steps at which the next one takes over; one less than schedulers"));
  }
};

/// Schedulers that take turns, the next one at each milestone, as in PyTorch's SequentialLR. Constructors throw Error
/// for an empty list, a scheduler that is null or needs a metric, and milestones that do not rise or are not one fewer
/// than the schedulers; ConfigError for invalid options. Attaching throws Error if a scheduler has a different
/// optimizer.
class SequentialLR final : public ComposedScheduler {
 public:
  using Options = SequentialLROptions;

  /// Attached later, with the schedulers it makes.
  explicit SequentialLR(SequentialLROptions options);
  /// The schedulers may be attached to `optimizer` already, in the order of the list, or not at all.
  SequentialLR(Optimizer& optimizer, Schedulers schedulers, std::vector<int64_t> milestones);

  [[nodiscard]] std::string name() const override { return "SequentialLR"; }
  /// Each part has the steps up to the next one's.
  void fill_total_steps(int64_t steps) override;
  [[nodiscard]] ConfigNode written_options() const override;

 private:
  void begin() override;
  void advance(std::optional<double> metric) override;
  void restart() override;
  void check() const;

  std::vector<int64_t> milestones_;
};

/// Options of ChainedScheduler.
struct ChainedSchedulerOptions {
  std::vector<ClassSpec> schedulers = {};

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("schedulers", &ChainedSchedulerOptions::schedulers, "all stepped, in this order").not_empty());
  }
};

/// Schedulers that are stepped together, so that their factors multiply, as in PyTorch's ChainedScheduler. Constructors
/// throw Error for an empty list and a scheduler that is null or needs a metric; ConfigError for invalid options.
/// Attaching throws Error if a scheduler has a different optimizer.
class ChainedScheduler final : public ComposedScheduler {
 public:
  using Options = ChainedSchedulerOptions;

  /// Attached later, with the schedulers it makes.
  explicit ChainedScheduler(ChainedSchedulerOptions options);
  /// The schedulers may be attached to `optimizer` already, in the order of the list, or not at all.
  ChainedScheduler(Optimizer& optimizer, Schedulers schedulers);

  [[nodiscard]] std::string name() const override { return "ChainedScheduler"; }
  void fill_total_steps(int64_t steps) override;

 private:
  void begin() override;
  void advance(std::optional<double> metric) override;
  void restart() override;
};

}  // namespace levin
