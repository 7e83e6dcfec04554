#include "levin/trainer/step/nonfinite_loss.h"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "levin/core/console.h"
#include "levin/core/gradients.h"
#include "levin/precision/nonfinite.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/nonfinite_loss_error.h"
#include "levin/trainer/step/kept_buffers.h"

namespace levin {

namespace {

double loss_value(const at::Tensor& loss) {
  if (loss.is_cpu() && loss.scalar_type() == at::kFloat) return *static_cast<const float*>(loss.const_data_ptr());
  if (loss.is_cpu() && loss.scalar_type() == at::kDouble) return *static_cast<const double*>(loss.const_data_ptr());
  return loss.item().toDouble();
}

std::string position_text(const LossPlace& place) {
  const std::string last = std::to_string(place.last_batch);
  const bool is_one = place.first_batch == place.last_batch;
  return " in epoch " + std::to_string(place.epoch) + ", " +
         (is_one ? "batch " + last : "one of batches " + std::to_string(place.first_batch) + " to " + last) +
         ", global step " + std::to_string(place.global_step);
}

// What was found, and what the user can do about it.
struct Finding {
  std::string text;
  const char* advice;
};

Finding bad_loss(const LossPlace& place, double value) {
  const std::string text = std::isfinite(value) ? "not finite on another rank"
                           : std::isnan(value)  ? "nan"
                           : value > 0          ? "inf"
                                                : "-inf";
  return {"training_step: the loss is " + text + position_text(place) + ".",
          "Look at that batch, lower the learning rate, clip gradients, or set"};
}

// `which`: a clause.
Finding bad_gradient(const LossPlace& place, const std::string& which) {
  return {
      "backward: " + which + position_text(place) + ", although the loss is finite.",
      "sqrt, norm, pow, log and a division have no finite derivative at 0, also in elements that where() leaves out; "
      "detect_anomaly names the operation. Fix it, look at that batch, or set"};
}

Finding spoilt_gradient(const LossPlace& place, const std::string& which) {
  return {"on_before_optimizer_step or configure_gradient_clipping: " + which + position_text(place) +
              ", although it was finite before.",
          "Look at what the module and its callbacks do there (a division by a norm of 0?), or set"};
}

at::Tensor strided(const at::Tensor& gradient) {
  return gradient.layout() == at::kStrided ? gradient : gradient._values();
}

// Names the first parameter whose gradient is the reason, if it is on this rank.
std::string which_gradient(const LightningModule& module) {
  for (const auto& item : module.named_parameters()) {
    if (!item.value().grad().defined()) continue;
    const at::Tensor gradient = strided(item.value().grad().detach());
    if (!has_nonfinite(gradient)) continue;
    return "the gradient of " + item.key() + " is " + (gradient.isnan().any().item<bool>() ? "nan" : "inf");
  }
  return "a gradient is nan or inf";
}

// Of the running batch alone.
LossPlace batch_place(const Run& run) {
  const int64_t batch = run.fit.epoch.batch_idx;
  return {run.progress.epoch, batch, batch, run.progress.global_step};
}

[[noreturn]] void stop(const Finding& found) {
  throw NonFiniteLossError(found.text + " Nothing was updated with it. " + found.advice +
                           " TrainerOptions.nonfinite_loss to skip, rollback or ignore.");
}

void follow_policy(Run& run, const Finding& found) {
  const NonFiniteLoss policy = run.fit.nonfinite_loss;
  if (policy == NonFiniteLoss::stop) stop(found);
  run.fit.epoch.window.spoilt = true;
  ++run.entry.nonfinite_losses;
  if (run.fit.kept_buffers != nullptr) run.fit.kept_buffers->restore_nonfinite();
  if (policy == NonFiniteLoss::skip) Console::instance().warn(found.text + " Its update is skipped.");
  if (policy == NonFiniteLoss::rollback) run.fit.rollback_due = found.text;
}

// Whether the loss is all that its window's end will judge, and nothing will write to it: then it needs no copy, which
// would be a kernel in every step.
bool is_whole_window(const Run& run, const at::Tensor& loss) {
  return run.fit.late_check != nullptr && run.fit.step_graph == nullptr && run.fit.epoch.window.size == 1 &&
         loss.scalar_type() == at::kFloat;
}

}  // namespace

LossPlace loss_place(const Run& run) {
  LossPlace place = batch_place(run);
  if (run.fit.epoch.window.seen > 1) place.first_batch = run.fit.epoch.window.first_batch;
  return place;
}

void stop_for_loss(const LossPlace& place, double value) {
  stop(bad_loss(place, value));
}

bool keep_if_finite(Run& run, const at::Tensor& loss) {
  if (run.fit.nonfinite_loss == NonFiniteLoss::ignore) return true;
  const double value = loss.defined() ? loss_value(loss) : 0;
  // Ranks must agree; a single one need not.
  const bool finite = run.has_peers() ? !run.strategy->any(!std::isfinite(value)) : std::isfinite(value);
  if (!finite) follow_policy(run, bad_loss(batch_place(run), value));
  return finite;
}

bool notes_losses(const Run& run) {
  const bool waits = !run.strategy->device().is_cpu() || run.precision->scaler() != nullptr || run.has_peers() ||
                     run.fit.recording != nullptr;
  return waits && run.fit.nonfinite_loss != NonFiniteLoss::ignore;
}

bool keep_or_note(Run& run, const at::Tensor& loss) {
  if (!notes_losses(run)) return keep_if_finite(run, loss);
  // The sum is not finite if one of them is not; in double precision finite ones do not overflow.
  // In place, in a separate tensor: when steps are captured, all batches of a window must use the same memory.
  if (run.fit.epoch.window.unread_loss.defined()) {
    run.fit.epoch.window.unread_loss.add_(loss.detach().reshape({}));
  } else if (is_whole_window(run, loss)) {
    // Not detach(): what checks it writes to it, though the same value, and backward may need the loss.
    run.fit.epoch.window.unread_loss = loss.variable_data().reshape({});
  } else {
    run.fit.epoch.window.unread_loss = loss.detach().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true).reshape({});
  }
  // Sent with the gradients; a device is read at the end of the window, and a recorded step finds out by itself.
  if (!run.has_peers() || !loss.is_cpu() || run.fit.recording != nullptr) return true;
  if (!std::isfinite(loss_value(run.fit.epoch.window.unread_loss))) run.fit.to_say.add(RankNote::nonfinite_loss);
  return true;
}

// One operator, where isfinite() is five. Times one, the loss stays as it is.
void mark_if_not_finite(at::Tensor flag, const at::Tensor& loss) {
  at::_amp_foreach_non_finite_check_and_unscale_(loss, flag, at::ones({}, flag.options()));
}

void act_on_nonfinite(Run& run, double value) {
  follow_policy(run, bad_loss(loss_place(run), value));
}

void mark_nonfinite_gradients(at::Tensor flag, const at::Tensor& one, const Optimizer& optimizer) {
  const at::NoGradGuard no_grad;
  auto kinds = gradients_by_kind(optimizer.parameters());
  for (auto& grads : kinds) {
    for (at::Tensor& grad : grads) grad = strided(grad);
    // CUDA's operator does not take bfloat16. The sum of the magnitudes is nan or inf if one of them is.
    const bool is_known = grads[0].is_cpu() || grads[0].scalar_type() != at::kBFloat16;
    if (!is_known) grads = {at::stack(at::_foreach_norm(grads, 1)).to(at::kFloat)};
  }
  scale_and_check(kinds, flag, one);
}

bool checks_gradients(const Run& run) {
  return run.fit.nonfinite_loss != NonFiniteLoss::ignore && run.precision->scaler() == nullptr;
}

namespace {

// () float32: 1 if a gradient of `optimizer` on this rank is nan or inf, else 0. Does not block.
at::Tensor nonfinite_flag(const Optimizer& optimizer, const at::TensorOptions& number) {
  at::Tensor flag = at::zeros({}, number);
  mark_nonfinite_gradients(flag, at::ones({}, number), optimizer);
  return flag;
}

at::TensorOptions number_on_device(const Run& run) {
  return at::TensorOptions(at::kFloat).device(run.strategy->device());
}

}  // namespace

bool has_nonfinite_gradient(const Run& run, const Optimizer& optimizer) {
  if (!run.strategy->device().is_cpu()) return nonfinite_flag(optimizer, number_on_device(run)).item().toDouble() != 0;
  for (const auto& group : optimizer.groups()) {
    for (const auto& parameter : group.params) {
      const at::Tensor& gradient = parameter.unsafeGetTensorImpl()->grad();
      if (gradient.defined() && has_nonfinite(strided(gradient))) return true;
    }
  }
  return false;
}

at::Tensor found_nonfinite(const Run& run, const Optimizer& optimizer) {
  if (!checks_gradients(run)) return {};
  const at::TensorOptions number = number_on_device(run);
  if (!run.strategy->device().is_cpu() || run.fit.recording != nullptr) return nonfinite_flag(optimizer, number);
  const bool found = has_nonfinite_gradient(run, optimizer);
  if (!found && !run.strategy->has_sharded_gradients()) return {};
  return found ? at::ones({}, number) : at::zeros({}, number);
}

void act_on_nonfinite_gradient(Run& run) {
  follow_policy(run, bad_gradient(loss_place(run), which_gradient(*run.entry.module)));
}

void act_on_spoilt_gradient(Run& run) {
  follow_policy(run, spoilt_gradient(loss_place(run), which_gradient(*run.entry.module)));
}

bool keep_window_gradients(Run& run, const State& gradients) {
  const bool is_open = !run.fit.epoch.window.ended() && !run.fit.epoch.batch_running;
  if (!is_open || run.fit.epoch.window.spoilt || !checks_gradients(run)) return true;
  bool found = std::any_of(gradients.tensors.begin(), gradients.tensors.end(),
                           [](const auto& named) { return has_nonfinite(strided(named.second)); });
  if (run.has_peers() && !run.entry.failing) found = run.strategy->any(found);
  if (!found) return true;
  if (run.entry.failing) run.fit.epoch.window.spoilt = true;
  if (!run.entry.failing) act_on_nonfinite_gradient(run);
  return false;
}

void stop_for_gradient(const LossPlace& place) {
  stop(bad_gradient(place, "a gradient is nan or inf"));
}

}  // namespace levin
