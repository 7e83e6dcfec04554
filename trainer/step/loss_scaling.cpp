#include "levin/trainer/step/loss_scaling.h"

#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "levin/core/console.h"
#include "levin/core/count_of.h"
#include "levin/core/gradients.h"
#include "levin/core/log.h"
#include "levin/core/rank_status.h"
#include "levin/precision/grad_scaler.h"
#include "levin/trainer/run/batch_stream.h"
#include "levin/trainer/step/late_check.h"
#include "levin/trainer/step/nonfinite_loss.h"
#include "levin/trainer/step/step_notes.h"

namespace levin {

namespace {

// With this scale gradients up to 10^9 fit into float16: those that overflow must be inf or nan themselves. From 2^16
// it is reached after 31 skipped steps.
constexpr double kSmallestScale = 1.0 / 16384;

std::string place_text(const Run& run) {
  return "epoch " + std::to_string(run.progress.epoch) + ", batch " + std::to_string(run.fit.epoch.batch_idx) +
         ", global step " + std::to_string(run.progress.global_step);
}

// With the flag that all ranks agreed on, so that their scales stay equal.
void update_scale(GradScaler& scaler, bool overflow) {
  scaler.update(at::full({1}, overflow ? 1.0 : 0.0, scaler.scale_tensor().options()));
}

// Reads the scale, which waits for the device: only after a skipped step.
void watch_scale(const Run& run, const GradScaler& scaler) {
  const double scale = scaler.scale_value();
  const std::string name = run.precision->name();
  if (scale < kSmallestScale) {
    throw Error(name + ": gradients are inf or nan at a loss scale of " + number_text(scale) + " (" + place_text(run) +
                ", " + count_of(run.progress.skipped_steps, "step") +
                " skipped so far), so it is not the scale that makes them overflow. Find the operation with "
                "detect_anomaly, lower the learning rate, or use bf16-mixed.");
  }
  if (scale < 1 && scale >= scaler.options().backoff_factor) {
    Console::instance().warn(name +
                             ": the loss scale has fallen below 1: gradients are larger than float16 can hold. " +
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

namespace {

// Whether ranks have heard with the gradients that a loss is not finite.
bool has_heard(const Run& run) {
  return run.has_peers() && (run.strategy->device().is_cpu() || run.strategy->has_notes_on_device());
}

// Applies the policy to what was found in a window.
WindowResult act_on_flags(Run& run, bool of_loss, bool of_gradient, const at::Tensor& loss) {
  if (of_loss) act_on_nonfinite(run, loss.defined() ? loss.item().toDouble() : 0);
  if (of_loss) return WindowResult::nonfinite;
  if (!of_gradient) return WindowResult::good;
  if (run.precision->scaler() != nullptr) return WindowResult::overflow;
  act_on_nonfinite_gradient(run);
  return WindowResult::nonfinite;
}

// For ranks that have heard. Their reduced gradients are the same, unless they are sharded.
WindowResult read_notes(Run& run, const at::Tensor& loss, at::Tensor found_inf) {
  if (found_inf.defined() && run.strategy->has_sharded_gradients()) {
    found_inf = run.strategy->sum_on_device(found_inf);
  }
  const bool of_loss = run.fit.heard.take(RankNote::nonfinite_loss);
  return act_on_flags(run, of_loss, found_inf.defined() && found_inf.item().toDouble() != 0, loss);
}

}  // namespace

namespace {

// () of `flag`'s type: 1 if a loss of the window, on any rank that has been heard, is not finite.
at::Tensor nonfinite_flag(Run& run, const at::Tensor& loss, const at::TensorOptions& flag) {
  const StepNotes* notes = run.fit.recording;
  if (notes != nullptr && notes->heard.defined()) {
    return notes->heard.select(0, static_cast<int64_t>(RankNote::nonfinite_loss)).gt(0).to(flag);
  }
  // Without a loss of its own the rank has heard them as it does otherwise; such a step is not replayed.
  if (notes != nullptr && run.fit.heard.take(RankNote::nonfinite_loss)) return at::ones({}, flag);
  at::Tensor found = at::zeros({}, flag);
  if (loss.defined()) mark_if_not_finite(found, loss);  // recorded steps have it too
  return found;
}

// A recorded step has heard them with its gradients, which are the same on all ranks.
bool flags_are_known_to_all(const Run& run) {
  return !run.has_peers() || run.fit.recording != nullptr;
}

}  // namespace

at::Tensor window_flags(Run& run, const at::Tensor& loss, const at::Tensor& found_inf) {
  // All ranks take part, also one without a loss in this batch.
  const bool asked = found_inf.defined() || (run.has_peers() ? notes_losses(run) : loss.defined());
  if (!asked) return {};
  const at::NoGradGuard no_grad;
  const auto flag = at::TensorOptions(at::kFloat).device(run.strategy->device());
  at::Tensor flags = nonfinite_flag(run, loss, flag);
  if (found_inf.defined()) flags = at::stack({flags, found_inf.reshape({}).to(flag)});
  return flags_are_known_to_all(run) ? flags : run.strategy->reduce(flags, ReduceOp::max);
}

namespace {

at::Tensor read_flags(const Run& run, const at::Tensor& flags) {
  if (flags.is_cpu()) return flags;
  const RankWait waiting(device_wait_text(run));
  return flags.cpu();
}

}  // namespace

WindowResult judge_window(Run& run, const at::Tensor& flags, const at::Tensor& loss, const at::Tensor& heard) {
  if (run.fit.batches != nullptr) run.fit.batches->send_ahead();  // the device has the step to compute meanwhile
  if (run.fit.late_check != nullptr) {
    finish_late_check_and_hear(run);  // of the window before
    run.fit.late_check->begin(run, flags, loss, heard);
    return WindowResult::good;
  }
  const at::Tensor here = read_flags(run, flags);
  const auto* read = static_cast<const float*>(here.const_data_ptr());
  return act_on_flags(run, read[0] != 0, here.numel() > 1 && read[1] != 0, loss);
}

WindowResult read_window(Run& run, const at::Tensor& found_inf) {
  const at::Tensor loss = std::exchange(run.fit.epoch.window.unread_loss, at::Tensor());
  if (has_heard(run)) return read_notes(run, loss, found_inf);
  const at::Tensor flags = window_flags(run, loss, found_inf);
  return flags.defined() ? judge_window(run, flags, loss, /*heard=*/{}) : WindowResult::good;
}

void move_scale(Run& run, bool overflow) {
  GradScaler& scaler = *run.precision->scaler();
  update_scale(scaler, overflow);
  if (!overflow) return;
  ++run.progress.skipped_steps;
  log::trainer.info("a scaled gradient overflowed, so the step is skipped: {} so far", run.progress.skipped_steps);
  watch_scale(run, scaler);
}

// Gradients that an optimizer accumulates over several batches follow the scale.
void move_scale_of_batch(Run& run) {
  const std::optional<bool> overflow = std::exchange(run.fit.batch_overflowed, std::nullopt);
  if (!overflow || run.precision->scaler() == nullptr) return;
  GradScaler& scaler = *run.precision->scaler();
  const at::Tensor before = scaler.scale_tensor().clone();
  update_scale(scaler, *overflow);
  for (auto& wrapped : run.fit.optimizers) {
    if (wrapped.end_batch()) continue;
    const std::vector<at::Tensor> grads = gradients_of(wrapped.optimizer().parameters());
    const at::NoGradGuard no_grad;
    if (!grads.empty()) at::_foreach_mul_(grads, scaler.scale_tensor().div(before));
  }
  if (*overflow) watch_scale(run, scaler);
}

void report_skipped_steps(Precision& precision, const Progress& progress) {
  const int64_t skipped = progress.skipped_steps;
  if (skipped == 0 || precision.scaler() == nullptr) return;
  Console::instance().print(precision.name() + ": " + std::to_string(skipped) + " of " +
                            std::to_string(progress.global_step + skipped) +
                            " optimizer steps were skipped, because a scaled gradient overflowed. The loss scale is " +
                            number_text(precision.scaler()->scale_value()) + ".");
}

}  // namespace levin
