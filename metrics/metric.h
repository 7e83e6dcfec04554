// A quantity that is accumulated over batches and ranks, and computed from what was accumulated: accuracy, AUROC, BLEU.
//
//   levin::metrics::F1Score f1_{{.num_classes = 10, .average = levin::metrics::Average::macro}};  // in the module
//   f1_(logits, labels);                                                                          // in validation_step
//   log("val_f1", f1_);
//
// The trainer computes it at the end of the epoch over all ranks' samples, resets it before the next epoch, and saves
// it in checkpoints written inside an epoch. update() and operator() are called by every rank that has a batch, from
// the thread that runs the step; they do not communicate, so ranks may have different numbers of batches. No member is
// thread-safe: replicas of a module each have their own metric, which take() joins.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/core/state.h"

namespace levin::metrics {

/// An error of a metric that was computed with fewer samples than it needs, e.g. R2Score with one.
class TooFewSamplesError : public Error {
 public:
  using Error::Error;
};

/// How the states of two batches, or of two ranks, are combined. cat: the rows of one follow the rows of the other.
enum class StateReduce { sum, min, max, cat };

/// The tensors that hold what was accumulated, in the order of add_state. A cat state is one tensor; without rows its
/// shape is (0).
using MetricStates = std::vector<at::Tensor>;

/// The base of all metrics. A subclass declares its states in the constructor with add_state, changes them in its
/// update(), and returns the value from compute(). States live on the device of the latest batch, and update() reads no
/// number from a device.
///
///   class Hits : public levin::metrics::TensorMetric {
///    public:
///     Hits() { add_state("hits", levin::metrics::StateReduce::sum, torch::zeros({}, torch::kLong)); }
///     void update(const at::Tensor& preds, const at::Tensor& target) override {
///       begin_update(preds.device());
///       state(0).add_(preds.eq(target).sum());
///     }
///     at::Tensor compute() const override { return state(0).clone(); }
///     std::string name() const override { return "Hits"; }
///   };
class Metric {
 public:
  virtual ~Metric();
  Metric(const Metric&) = delete;
  Metric& operator=(const Metric&) = delete;

  /// Returns the value of everything accumulated by this rank since the last reset(): a scalar, or one value per class.
  /// Throws TooFewSamplesError if it needs more samples (a logged metric is NaN then), and Error if it cannot be
  /// computed for another reason, which ends the run. Most metrics are nan or 0 before the first update, as in
  /// torchmetrics.
  [[nodiscard]] virtual at::Tensor compute() const = 0;

  /// Forgets what was accumulated.
  virtual void reset();

  /// Calls of update() since the last reset().
  [[nodiscard]] int64_t update_count() const { return updates_; }

  /// Returns the value of the latest batch alone, which `log` writes for a step. Throws Error if the batch was given to
  /// update() instead of operator().
  [[nodiscard]] at::Tensor batch_value() const;
  [[nodiscard]] bool has_batch_value() const { return has_batch_; }

  /// Return and set copies of the states: for reduction over ranks and for checkpoints.
  [[nodiscard]] virtual MetricStates states() const;
  virtual void set_states(const MetricStates& states, int64_t updates);
  [[nodiscard]] virtual const std::vector<StateReduce>& reductions() const { return reductions_; }

  /// Adds what another rank, or another batch, has accumulated. The default follows the states' StateReduce; a metric
  /// whose states are combined by a different formula (a variance) overrides it.
  virtual void merge(const MetricStates& other, int64_t updates);

  /// Moves what `other`, a metric with the same options, has accumulated into this metric, including its latest batch,
  /// and resets `other`: the replicas of a module each have their own metric.
  void take(Metric& other);

  /// Returns the states by name, for checkpoints.
  [[nodiscard]] State state_dict() const;
  /// Throws CheckpointError naming a state that is missing or has a different shape or type.
  void load_state_dict(const State& saved);
  [[deprecated("use state_dict()")]] [[nodiscard]] State state() const { return state_dict(); }
  [[deprecated("use load_state_dict()")]] void load_state(const State& saved) { load_state_dict(saved); }

  /// Returns a reference that is empty once the metric is destroyed: `log` keeps it instead of the metric.
  [[nodiscard]] std::weak_ptr<Metric> self() const { return self_; }

  /// Returns the class's name for messages: "F1Score".
  [[nodiscard]] virtual std::string name() const = 0;

 protected:
  Metric();

  /// Declares a state and returns its index for state(index). reset() restores `initial`, which is undefined for cat.
  size_t add_state(const std::string& name, StateReduce reduce, const at::Tensor& initial = {});
  /// Declares a max state of an int64 that starts at 0. The value of a single batch uses the maximum over all batches.
  size_t add_decision(const std::string& name);
  /// Returns a sum, min or max state, to be changed in place or assigned.
  [[nodiscard]] at::Tensor& state(size_t index) { return values_[index]; }
  [[nodiscard]] const at::Tensor& state(size_t index) const { return values_[index]; }
  /// Appends a detached copy of these rows to a cat state.
  void append(size_t index, const at::Tensor& value);
  /// Appends rows without copying: for detached rows that nothing else changes.
  void append_own(size_t index, const at::Tensor& value);
  /// Returns all rows of a cat state; shape (0) if there are none.
  [[nodiscard]] at::Tensor rows(size_t index) const;

  /// Counts the call and moves the states to `device`. Every update() calls it first.
  void begin_update(at::Device device);

  /// Implements operator() of a subclass: runs `update` on empty states, keeps them for batch_value(), and merges them
  /// into the accumulated states.
  template <class Update>
  void update_and_keep(Update update) {
    const Kept before = set_aside();
    try {
      update();
    } catch (...) {
      put_back(before);
      throw;
    }
    keep_batch(before);
  }

 private:
  friend struct UpdateRecord;
  struct Kept {
    std::vector<at::Tensor> values;
    std::vector<std::vector<at::Tensor>> pieces;
    int64_t updates = 0;
  };

  void before_change();

  void move_to(at::Device device);
  Kept set_aside();
  void put_back(const Kept& kept);
  void keep_batch(const Kept& before);

  std::vector<std::string> names_ = {};
  std::vector<StateReduce> reductions_ = {};
  std::vector<size_t> decisions_ = {};
  std::vector<at::Tensor> initial_ = {};
  std::vector<at::Tensor> values_ = {};
  std::vector<std::vector<at::Tensor>> pieces_ = {};  // of cat states
  int64_t updates_ = 0;
  MetricStates batch_ = {};  // of the latest operator()
  bool has_batch_ = false;
  std::shared_ptr<Metric> self_;
};

/// The base of metrics of predictions and targets, tensors on one device. operator() is update() that also keeps the
/// value of the batch alone, for `log` with on_step.
class TensorMetric : public Metric {
 public:
  /// Throws Error naming the metric and both shapes unless they are the shapes in the metric's documentation.
  virtual void update(const at::Tensor& preds, const at::Tensor& target) = 0;
  void operator()(const at::Tensor& preds, const at::Tensor& target) {
    update_and_keep([&] { update(preds, target); });
  }
};

/// The base of metrics of strings. Each prediction has one or more references.
class TextMetric : public Metric {
 public:
  using Texts = std::vector<std::string>;
  virtual void update(const Texts& preds, const std::vector<Texts>& references) = 0;
  /// Takes one reference for each prediction. Throws Error if the numbers differ.
  void update(const Texts& preds, const Texts& references);
  void operator()(const Texts& preds, const std::vector<Texts>& references) {
    update_and_keep([&] { update(preds, references); });
  }
  void operator()(const Texts& preds, const Texts& references) {
    update_and_keep([&] { update(preds, references); });
  }
};

}  // namespace levin::metrics
