// An average of a module's weights, kept beside the trained weights: the common part of WeightAveraging and
// StochasticWeightAveraging. Every rank keeps its own; ranks with equal weights have equal averages.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "levin/core/state.h"
#include "levin/trainer/callback.h"

namespace levin {

/// The averages of one module's tensors. Updates and swaps run without gradients, and do not wait for a device unless
/// the averages are kept on another one.
class AveragedWeights {
 public:
  /// How buffers are treated. Integer buffers are never averaged: the mean of counters is not a counter. PyTorch
  /// averages them too, and truncates.
  enum class Buffers { averaged, copied, left_alone };

  /// Starts anew with the module's tensors; the average has no value yet. `device`: where to keep it; unset: on the
  /// device of the weights. Averages of 16-bit weights are kept in float32, because a small step towards a new value
  /// would be lost in rounding.
  void hold(LightningModule& module, Buffers buffers, const std::optional<std::string>& device);
  void forget();
  /// Bytes that hold() allocates on the module's device.
  [[nodiscard]] static int64_t bytes_of(const LightningModule& module, Buffers buffers,
                                        const std::optional<std::string>& device);
  [[nodiscard]] bool holds(const LightningModule& module) const { return module_ == &module; }

  /// The number of weights averaged so far.
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
  /// Swaps the weights back, bit for bit. Does nothing if they are not swapped.
  void swap_out();
  [[nodiscard]] bool swapped() const { return !kept_.empty(); }

  /// The averages by the module's names and count(); empty before the first update.
  [[nodiscard]] State state() const;
  /// After hold(). Throws CheckpointError naming the tensor that is missing or of another shape.
  void load_state(const State& saved);
  /// The weights without the average, by name.
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
class AveragingCallback : public Callback {
 public:
  /// Throws ConfigError if another callback also averages.
  void setup(Trainer& trainer, LightningModule& module, Stage stage) override;
  /// Puts the average into the module, if there is one.
  void on_train_end(Trainer& trainer, LightningModule&) override;
  /// The same if nothing was left to train: a run that was killed after its last epoch and resumed.
  void on_fit_end(Trainer& trainer, LightningModule& module) override;
  /// Puts the weights back if a validation with the average failed.
  void on_exception(Trainer&, LightningModule&, const std::exception&) override;
  [[nodiscard]] State weights_to_save(const LightningModule& module) const override;
  void on_save_checkpoint(Trainer&, LightningModule& module, State& checkpoint) override;
  void on_load_checkpoint(Trainer& trainer, LightningModule& module, const State& checkpoint) override;

  /// The number of weights averaged so far.
  [[nodiscard]] int64_t n_averaged() const { return weights_.count(); }

 protected:
  /// Whether checkpoints contain the average as the model from the first update on, not just at the end.
  [[nodiscard]] virtual bool saves_average_as_model() const = 0;
  /// Throws ConfigError if an optimizer keeps an average itself; in on_fit_start.
  void check_optimizers(Trainer& trainer) const;

  AveragedWeights weights_;
  bool fitting_ = false;  // the running entry point is fit
  bool ended_ = false;    // and its training is over
};

}  // namespace levin
