// An exponential moving average of the weights, which validation, checkpoints and the trained module use.
//
//   .callbacks = {levin::EMAWeightAveraging({.decay = 0.999, .update_starting_at_step = 1000})}
#pragma once

#include "levin/callbacks/weight_averaging.h"

namespace levin {

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
