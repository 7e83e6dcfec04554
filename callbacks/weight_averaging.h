// Keeps an average of the weights during training, which validation, checkpoints and the trained module use: the common
// parts (also of StochasticWeightAveraging), WeightAveraging and EMAWeightAveraging.
//
//   .callbacks = {levin::EMAWeightAveraging({.decay = 0.999})}
//
//   class EachEpoch : public levin::WeightAveraging {      // a custom average: of the weights after each epoch
//     bool should_update(std::optional<int64_t>, std::optional<int64_t> epoch_idx) const override {
//       return epoch_idx.has_value();
//     }
//   };
//
// Until the first update, validation and checkpoints use the trained weights.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/core/state.h"
#include "levin/trainer/averages_weights.h"
#include "levin/trainer/callback.h"

namespace levin {

/// An average of one module's tensors, kept in addition to the trained weights. Every rank keeps its own; ranks with
/// equal weights have equal averages. Updates and swaps run without gradients, and do not wait for a device unless the
/// averages are kept on a different one.
class AveragedWeights {
 public:
  /// How buffers are treated. Integer buffers are never averaged: the mean of counters is not a counter. PyTorch
  /// averages them too, and truncates.
  enum class Buffers { averaged, copied, left_alone };

  /// Starts anew with the module's tensors; the average has no value yet. `device`: where to keep it; unset: on the
  /// device of the weights. Averages of 16-bit weights are kept in float32, because a small step towards a new value
  /// would be lost in rounding.
  void hold(LightningModule& module, Buffers buffers, const std::optional<std::string>& device);
  /// Drops the averages and the module.
  void forget();
  /// Bytes that hold() allocates on the module's device.
  [[nodiscard]] static int64_t bytes_of(const LightningModule& module, Buffers buffers,
                                        const std::optional<std::string>& device);
  [[nodiscard]] bool holds(const LightningModule& module) const { return module_ == &module; }
  [[nodiscard]] bool holds_a_module() const { return module_ != nullptr; }

  /// Returns the number of weights averaged so far.
  [[nodiscard]] int64_t count() const { return count_; }

  /// Adds the current weights to the average: the first ones by copying, later ones by
  /// `average(averages, weights, count())`, which changes `averages`.
  template <class Average>
  void update(Average average) {
    const std::vector<at::Tensor> weights = begin_update();
    if (count_ > 0 && !averages_.empty()) average(at::TensorList(averages_), at::TensorList(weights), count_);
    end_update(weights);
  }

  /// Swaps the average into the module, and keeps the weights aside. Requires count() > 0.
  void swap_in();
  /// Swaps the weights back, bitwise identical. Does nothing if they are not swapped.
  void swap_out();
  [[nodiscard]] bool swapped() const { return !kept_.empty(); }

  /// Returns the averages by the module's names and count(); empty before the first update.
  [[nodiscard]] State state_dict() const;
  /// Requires hold(). Throws CheckpointError naming the tensor that is missing or has a different shape.
  void load_state_dict(const State& saved);
  /// Returns the weights without the average, by name.
  [[nodiscard]] State weights() const;

 private:
  struct Entry {
    std::string name;
    at::Tensor weight;         // the module's
    at::Tensor average;        // undefined for buffers that are not averaged
    bool is_averaged = false;  // false: copied
  };

  [[nodiscard]] std::vector<at::Tensor> begin_update() const;
  void end_update(const std::vector<at::Tensor>& weights);

  const LightningModule* module_ = nullptr;
  std::vector<Entry> entries_;
  std::vector<at::Tensor> averages_;  // of the entries that are averaged, in order
  std::vector<at::Tensor> kept_;      // while swapped: the weight of every entry
  int64_t count_ = 0;
};

/// Adds the weights to a mean of `count` earlier ones.
void update_mean(at::TensorList averages, at::TensorList weights, int64_t count);

/// A callback that leaves an average in the module after training. Checkpoints whose model is the average hold the
/// trained weights as "current_model", and a fit continues with those.
class AveragingCallback : public Callback, public AveragesWeights {
 public:
  /// Throws ConfigError if another callback also averages.
  void setup(Trainer& trainer, LightningModule& module, Stage stage) override;
  /// Puts the average into the module, if there is one.
  void on_train_end(Trainer& trainer, LightningModule&) override;
  /// Does the same for a run that was killed after its last epoch and has nothing left to train.
  void on_fit_end(Trainer& trainer, LightningModule& module) override;
  /// Puts the weights back if a validation with the average failed.
  void on_exception(Trainer&, LightningModule&, const std::exception&) override;
  [[nodiscard]] State weights_to_save(const LightningModule& module) const override;
  void on_save_checkpoint(Trainer&, LightningModule& module, State& checkpoint) override;
  void on_load_checkpoint(Trainer& trainer, LightningModule& module, const State& checkpoint) override;

  /// Returns the number of weights averaged so far.
  [[nodiscard]] int64_t n_averaged() const { return weights_.count(); }

 protected:
  /// Returns whether checkpoints contain the average as the model from the first update on, not just at the end.
  [[nodiscard]] virtual bool saves_average_as_model() const = 0;
  /// Throws ConfigError if an optimizer keeps an average itself; in on_fit_start.
  void check_optimizers(Trainer& trainer) const;

  AveragedWeights weights_;
  bool fitting_ = false;  // the running entry point is fit
  bool ended_ = false;    // and its training is over
};

namespace detail {
/// Returns whether LibTorch accepts it as a device ("cpu", "cuda:1"); unset is allowed.
[[nodiscard]] bool is_device(const std::optional<std::string>& device);
}  // namespace detail

/// Options of WeightAveraging.
struct WeightAveragingOptions {
  std::optional<std::string> device = std::nullopt;  // where the average is kept; unset: the device of the weights
  bool use_buffers = true;                           // average buffers too; false: copy them at each update

  template <class = void>
  static auto fields() {
    using O = WeightAveragingOptions;
    return levin::fields(
        field("device", &O::device, "where the average is kept (cpu saves GPU memory); null: the device of the weights")
            .check(detail::is_device, "a device, such as cpu or cuda:0"),
        field("use_buffers", &O::use_buffers, "average floating-point buffers too; false: copy them"));
  }
};

/// A callback that keeps the mean of the weights after every optimizer step, unless a subclass overrides it. Hooks run
/// on every rank; throws ConfigError if another callback or the optimizer averages too.
class WeightAveraging : public AveragingCallback {
 public:
  using Options = WeightAveragingOptions;
  explicit WeightAveraging(Defaults = {}) : WeightAveraging(WeightAveragingOptions()) {}
  explicit WeightAveraging(WeightAveragingOptions options);

  void setup(Trainer& trainer, LightningModule& module, Stage stage) override;
  void on_fit_start(Trainer& trainer, LightningModule& module) override;
  void on_train_batch_end(Trainer& trainer, LightningModule&, const at::Tensor&, const Batch&, int64_t) override;
  void on_train_epoch_end(Trainer& trainer, LightningModule&) override;
  void on_validation_epoch_start(Trainer& trainer, LightningModule&) override;
  void on_validation_epoch_end(Trainer& trainer, LightningModule&) override;
  void on_load_checkpoint(Trainer& trainer, LightningModule& module, const State& checkpoint) override;

  [[nodiscard]] int64_t held_bytes(const LightningModule& module) const override;
  [[nodiscard]] std::string state_key() const override { return "WeightAveraging"; }

  /// Called after every optimizer step with its index and after every epoch with its index, both from 0.
  [[nodiscard]] virtual bool should_update(std::optional<int64_t> step_idx, std::optional<int64_t> epoch_idx) const;

 protected:
  /// Adds `weights` to `averages` of `count` earlier ones (at least 1), in place; no gradients are recorded.
  virtual void average(at::TensorList averages, at::TensorList weights, int64_t count) const;
  [[nodiscard]] State default_state_dict() const override;
  void load_default_state_dict(const State& saved) override;

 private:
  [[nodiscard]] bool saves_average_as_model() const override { return true; }
  void update();
  void hold(LightningModule& module);
  void use_loaded();

  WeightAveragingOptions options_;
  int64_t latest_update_step_ = 0;    // global_step at the last update
  int64_t latest_update_epoch_ = -1;  // current_epoch at the last update after an epoch

  // From a checkpoint, until the module is on the device where it trains.
  std::map<std::string, at::Tensor> loaded_model_ = {};
  std::optional<State> loaded_ = std::nullopt;
};

/// Options of EMAWeightAveraging.
struct EMAWeightAveragingOptions {
  std::optional<std::string> device = std::nullopt;  // where the average is kept; unset: the device of the weights
  bool use_buffers = true;                           // average buffers too; false: copy them at each update
  double decay = 0.999;                              // how much of the average is kept at each update
  int64_t update_every_n_steps = 1;                  // optimizer steps
  std::optional<int64_t> update_starting_at_step = std::nullopt;
  std::optional<int64_t> update_starting_at_epoch = std::nullopt;  // from then on also after each epoch

  template <class = void>
  static auto fields() {
    using O = EMAWeightAveragingOptions;
    const auto from_zero = [](const std::optional<int64_t>& n) { return !n || *n >= 0; };
    return levin::fields(
        field("device", &O::device, "where the average is kept (cpu saves GPU memory); null: the device of the weights")
            .check(detail::is_device, "a device, such as cpu or cuda:0"),
        field("use_buffers", &O::use_buffers, "average floating-point buffers too; false: copy them"),
        field("decay", &O::decay, "average = decay * average + (1 - decay) * weights").min(0.0).max(1.0),
        field("update_every_n_steps", &O::update_every_n_steps,
              "update after the first of every n optimizer steps; 0: not after steps")
            .min(0),
        field("update_starting_at_step", &O::update_starting_at_step, "no update after steps before this one (from 0)")
            .check(from_zero, ">= 0"),
        field("update_starting_at_epoch", &O::update_starting_at_epoch,
              "update after every epoch too, from this one (from 0) on")
            .check(from_zero, ">= 0"));
  }
};

/// An exponential moving average of the weights: average = decay * average + (1 - decay) * weights. Every rank keeps
/// its own.
///
///   .callbacks = {levin::EMAWeightAveraging({.decay = 0.999, .update_starting_at_step = 1000})}
class EMAWeightAveraging : public WeightAveraging {
 public:
  using Options = EMAWeightAveragingOptions;
  explicit EMAWeightAveraging(Defaults = {}) : EMAWeightAveraging(EMAWeightAveragingOptions()) {}
  explicit EMAWeightAveraging(EMAWeightAveragingOptions options);

  [[nodiscard]] bool should_update(std::optional<int64_t> step_idx, std::optional<int64_t> epoch_idx) const override;
  [[nodiscard]] std::string state_key() const override { return "EMAWeightAveraging"; }

 protected:
  void average(at::TensorList averages, at::TensorList weights, int64_t count) const override;

 private:
  EMAWeightAveragingOptions options_;
};

}  // namespace levin
