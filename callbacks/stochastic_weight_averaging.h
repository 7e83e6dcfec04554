// Stochastic weight averaging (Izmailov et al. 2018, https://arxiv.org/abs/1803.05407): towards the end of training the
// learning rate becomes constant and the weights at the start of each epoch are averaged; finally the average is put
// into the module.
//
//   .callbacks = {levin::StochasticWeightAveraging({.swa_lrs = 0.01, .swa_epoch_start = 0.75})}
//
// Validation and checkpoints within training use the trained weights. If the module has BatchNorm layers, one more pass
// over the training data at the end computes their statistics for the average.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "levin/callbacks/weight_averaging.h"
#include "levin/core/options/fields.h"
#include "levin/optim/swa_lr.h"

namespace levin {

/// Options of StochasticWeightAveraging.
struct StochasticWeightAveragingOptions {
  FloatOrList swa_lrs = 0.0;                            // required
  std::variant<int64_t, double> swa_epoch_start = 0.8;  // an epoch from 1, or a fraction of max_epochs
  int64_t annealing_epochs = 10;
  EnumOption<AnnealStrategy> annealing_strategy = AnnealStrategy::cos;
  std::optional<std::string> device = "cpu";  // where the average is kept; unset: the device of the weights

  template <class = void>
  static auto fields() {
    using O = StochasticWeightAveragingOptions;
    return levin::fields(
        field("swa_lrs", &O::swa_lrs, "the constant lr; one, or one per group")
            .check([](const FloatOrList& value) { return detail::all_above(value, 0); }, "set, and > 0"),
        field("swa_epoch_start", &O::swa_epoch_start,
              "int: the epoch, counted from 1, in which averaging starts; float: the fraction of max_epochs before it")
            .check(
                [](const auto& start) {
                  const auto* fraction = std::get_if<double>(&start);
                  return fraction != nullptr ? *fraction >= 0 && *fraction <= 1 : std::get<int64_t>(start) >= 1;
                },
                "an integer >= 1 or a float from 0 to 1"),
        field("annealing_epochs", &O::annealing_epochs, "epochs from lr to swa_lrs; 0: at once").min(0),
        field("annealing_strategy", &O::annealing_strategy, "along half a cosine or a line"),
        field("device", &O::device, "where the average is kept; null: the device of the weights")
            .check(detail::is_device, "a device, such as cpu or cuda:0"));
  }
};

/// A callback that averages the weights of the last epochs, for one optimizer and at most one scheduler, in automatic
/// optimization. Hooks run on every rank; the pass for BatchNorm is collective.
class StochasticWeightAveraging final : public AveragingCallback {
 public:
  using Options = StochasticWeightAveragingOptions;
  explicit StochasticWeightAveraging(StochasticWeightAveragingOptions options);

  /// Throws ConfigError if the module has several optimizers or schedulers or uses manual optimization, and for a
  /// fraction of max_epochs without max_epochs.
  void on_fit_start(Trainer& trainer, LightningModule& module) override;
  void on_train_epoch_start(Trainer& trainer, LightningModule&) override;
  void on_train_end(Trainer& trainer, LightningModule& module) override;

  [[nodiscard]] int64_t held_bytes(const LightningModule& module) const override;
  [[nodiscard]] State state_dict() const override;
  void load_state_dict(const State& saved) override;
  [[nodiscard]] std::string state_key() const override { return "StochasticWeightAveraging"; }

  /// Returns the epoch (from 0) that averaging starts in; known once fit has started.
  [[nodiscard]] int64_t swa_start() const { return start_; }

 private:
  [[nodiscard]] bool saves_average_as_model() const override { return false; }
  void check(Trainer& trainer, const LightningModule& module) const;
  void replace_scheduler(Trainer& trainer) const;

  StochasticWeightAveragingOptions options_;
  int64_t start_ = 0;
  int64_t latest_update_epoch_ = -1;
  std::optional<State> loaded_ = std::nullopt;  // from a checkpoint, until the module is on its device
};

}  // namespace levin
