#include "levin/trainer/step/loss_scaling.h"

#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/process/log.h"
#include "levin/core/tensors.h"
#include "levin/precision/grad_scaler.h"
#include "levin/trainer/step/run_messages.h"

namespace levin {

namespace {

// With this scale gradients up to 10^9 fit into float16: gradients that overflow must be inf or nan themselves. From
// 2^16 it is reached after 31 skipped steps.
constexpr double kSmallestScale = 1.0 / 16384;

std::string place_text(const StepCore& core) {
  return "epoch " + std::to_string(core.place.epoch) + ", batch " + std::to_string(core.place.batch_idx) +
         ", global step " + std::to_string(core.counters.global_step);
}

// Updates the scale by a flag on which all ranks agreed, so that their scales stay equal.
void update_scale(GradScaler& scaler, bool overflow) {
  scaler.update(at::full({1}, overflow ? 1.0 : 0.0, scaler.scale_tensor().options()));
}

// Reads the scale, which waits for the device: only after a skipped step.
void watch_scale(const StepCore& core, const GradScaler& scaler) {
  const double scale = scaler.scale_value();
  const std::string name = core.precision.name();
  if (scale < kSmallestScale) {
    throw Error(name + ": gradients are inf or nan at a loss scale of " + number_text(scale) + " (" + place_text(core) +
                ", " + count_of(core.counters.skipped_steps, "step") +
                " skipped so far), so it is not the scale that makes them overflow. Find the operation with "
                "detect_anomaly, lower the learning rate, or use bf16-mixed.");
  }
  if (scale < 1 && scale >= scaler.options().backoff_factor) {
    warn_of_run(name + ": the loss scale has fallen below 1: gradients are larger than float16 can hold. " +
                "If steps keep being skipped, lower the learning rate or use bf16-mixed.");
  }
}

}  // namespace

void check_scaling(Precision& precision, const std::vector<std::shared_ptr<Optimizer>>& optimizers) {
  if (precision.scaler() == nullptr) return;
  for (const auto& optimizer : optimizers) {
    if (!optimizer->needs_closure()) continue;
    throw ConfigError("TrainerOptions.precision: " + precision.name() + " scales the loss, and " + optimizer->name() +
                      " evaluates it several times in one step, where the scale cannot be undone. Use bf16-mixed or "
                      "32-true, or another optimizer.");
  }
}

void move_scale(StepCore& core, bool overflow) {
  GradScaler& scaler = *core.precision.scaler();
  update_scale(scaler, overflow);
  if (!overflow) return;
  ++core.counters.skipped_steps;
  log::trainer.info("a scaled gradient overflowed, so the step is skipped: {} so far", core.counters.skipped_steps);
  watch_scale(core, scaler);
}

// Gradients that an optimizer accumulates over several batches follow the scale.
void move_scale_of_batch(StepCore& core) {
  const std::optional<bool> overflow = std::exchange(core.batch_overflowed, std::nullopt);
  if (!overflow || core.precision.scaler() == nullptr) return;
  GradScaler& scaler = *core.precision.scaler();
  const at::Tensor before = scaler.scale_tensor().clone();
  update_scale(scaler, *overflow);
  for (auto& wrapped : core.optimizers) {
    if (wrapped.end_batch()) continue;
    const std::vector<at::Tensor> grads = gradients_of(wrapped.optimizer().parameters());
    const at::NoGradGuard no_grad;
    if (!grads.empty()) at::_foreach_mul_(grads, scaler.scale_tensor().div(before));
  }
  if (*overflow) watch_scale(core, scaler);
}

void report_skipped_steps(Precision& precision, const StepCounters& counters) {
  const int64_t skipped = counters.skipped_steps;
  if (skipped == 0 || precision.scaler() == nullptr) return;
  note_of_run(precision.name() + ": " + std::to_string(skipped) + " of " +
              std::to_string(counters.global_step + skipped) +
              " optimizer steps were skipped, because a scaled gradient overflowed. The loss scale is " +
              number_text(precision.scaler()->scale_value()) + ".");
}

}  // namespace levin
