// Keeps an average of the weights during training, which validation, checkpoints and the trained module use.
//
//   .callbacks = {levin::EMAWeightAveraging({.decay = 0.999})}
//
//   class EachEpoch : public levin::WeightAveraging {      // a custom average: of the weights after each epoch
//     bool should_update(std::optional<int64_t>, std::optional<int64_t> epoch_idx) const override {
//       return epoch_idx.has_value();
//     }
//   };
//
// Before the first update there is no average: validation and checkpoints use the trained weights.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "levin/callbacks/averaged_weights.h"
#include "levin/core/fields.h"

namespace levin {

namespace detail {
/// Whether LibTorch accepts it as a device ("cpu", "cuda:1"); unset is allowed.
[[nodiscard]] bool is_device(const std::optional<std::string>& device);
}  // namespace detail

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

/// The mean of the weights after every optimizer step, unless a subclass overrides it.
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
  [[nodiscard]] State state() const override;
  void load_state(const State& saved) override;
  [[nodiscard]] std::string state_key() const override { return "WeightAveraging"; }

  /// Called after every optimizer step with its index and after every epoch with its index, both from 0.
  [[nodiscard]] virtual bool should_update(std::optional<int64_t> step_idx, std::optional<int64_t> epoch_idx) const;

 protected:
  /// Adds `weights` to `averages` of `count` earlier ones (at least 1), in place; no gradients are recorded.
  virtual void average(at::TensorList averages, at::TensorList weights, int64_t count) const;

 private:
  [[nodiscard]] bool saves_average_as_model() const override { return true; }
  void update();

  WeightAveragingOptions options_;
  int64_t latest_update_step_ = 0;    // global_step at the last update
  int64_t latest_update_epoch_ = -1;  // current_epoch at the last update after an epoch

  // From a checkpoint, until the module is on the device where it trains.
  std::map<std::string, at::Tensor> loaded_model_ = {};
  std::optional<State> loaded_ = std::nullopt;
};

}  // namespace levin
