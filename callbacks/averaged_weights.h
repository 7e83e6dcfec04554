// An average of a module's weights next to the trained weights: what WeightAveraging and StochasticWeightAveraging
// have in common. Every rank keeps its own; ranks with equal weights have equal averages.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "levin/core/state.h"
#include "levin/trainer/callback.h"

namespace levin {

/// The averages of one module's tensors. Updates and swaps run without gradients; none waits for a device, unless the
/// averages are kept on another one.
class AveragedWeights {
 public:
  /// What happens to buffers. Those of integers are never averaged: a mean of counters is no counter.
  // PyTorch: averages them too, and cuts the fraction off.
  enum class Buffers { averaged, copied, left_alone };

  /// Forgets everything and takes hold of the module's tensors; the average has no value yet. `device`: where to keep
  /// it; unset: beside the weights. Averages of 16-bit weights are kept in float32, because a small step towards a
  /// new value would be lost in rounding.
  void hold(LightningModule& module, Buffers buffers, const std::optional<std::string>& device);
  void forget();
  /// Bytes that hold() takes on the module's own device.
  [[nodiscard]] static int64_t bytes_of(const LightningModule& module, Buffers buffers,
                                        const std::optional<std::string>& device);
  [[nodiscard]] bool holds(const LightningModule& module) const { return module_ == &module; }

  /// Weights that went into the average.
  [[nodiscard]] int64_t count() const { return count_; }

  /// Lets the weights as they are into the average: the first ones as they are, later ones by
  /// `average(averages, weights, count())`, which changes `averages`.
  template <class Average>
  void update(Average average) {
    const std::vector<at::Tensor> weights = begin_update();
    if (count_ > 0 && !averages_.empty()) average(at::TensorList(averages_), at::TensorList(weights), count_);
    end_update(weights);
  }

  /// The module's tensors become the average, and what they were is kept aside. Requires count() > 0.
  void swap_in();
  /// The module's tensors become what they were, bit for bit. Nothing if they are not swapped.
  void swap_out();
  [[nodiscard]] bool swapped() const { return !kept_.empty(); }

  /// The averages by the module's names and count(); empty before the first update.
  [[nodiscard]] State state() const;
  /// After hold(). Throws CheckpointError naming the tensor that is missing or of another shape.
  void load_state(const State& saved);
  /// What the module's tensors are without the average, by name.
  [[nodiscard]] State weights() const;

 private:
  struct Entry {
    std::string name;
    at::Tensor weight;         // the module's
    at::Tensor average;        // undefined for buffers that are left alone
    bool is_averaged = false;  // false: copied
  };

  [[nodiscard]] std::vector<at::Tensor> begin_update() const;
  void end_update(const std::vector<at::Tensor>& weights);

  const LightningModule* module_ = nullptr;
  std::vector<Entry> entries_;
  std::vector<at::Tensor> averages_;  // of the entries that are averaged, in order
  std::vector<at::Tensor> kept_;      // while swapped: what every entry's weight was
  int64_t count_ = 0;
};

/// Lets the weights into a mean of `count` earlier ones.
void update_mean(at::TensorList averages, at::TensorList weights, int64_t count);

/// A callback that ends training with an average in the module. Checkpoints that are saved while the average is in the
/// module, or stands for it, hold the trained weights as "current_model", and a fit continues with those.
class AveragingCallback : public Callback {
 public:
  /// Throws ConfigError if another callback averages too.
  void setup(Trainer& trainer, LightningModule& module, Stage stage) override;
  /// The average goes into the module, if there is one.
  void on_train_end(Trainer& trainer, LightningModule&) override;
  /// The same where there was nothing left to train: a run that was cut after its last epoch and continued.
  void on_fit_end(Trainer& trainer, LightningModule& module) override;
  /// The module gets its own weights back if a validation with the average failed.
  void on_exception(Trainer&, LightningModule&, const std::exception&) override;
  [[nodiscard]] State weights_to_save(const LightningModule& module) const override;
  void on_save_checkpoint(Trainer&, LightningModule& module, State& checkpoint) override;
  void on_load_checkpoint(Trainer& trainer, LightningModule& module, const State& checkpoint) override;

  /// How many weights went into the average.
  [[nodiscard]] int64_t n_averaged() const { return weights_.count(); }

 protected:
  /// Whether checkpoints hold the average as the model from the first update on, not just at the end.
  [[nodiscard]] virtual bool saves_average_as_model() const = 0;

  AveragedWeights weights_;
  bool fitting_ = false;  // the running entry point is fit
  bool ended_ = false;    // and its training is over
};

}  // namespace levin
