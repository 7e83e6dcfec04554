#include "levin/trainer/step/nonfinite_loss.h"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/ones.h>

#include <cmath>

#include "levin/core/console.h"
#include "levin/trainer/nonfinite_loss_error.h"

namespace levin {

namespace {

double loss_value(const at::Tensor& loss) {
  if (loss.is_cpu() && loss.scalar_type() == at::kFloat) return *static_cast<const float*>(loss.const_data_ptr());
  if (loss.is_cpu() && loss.scalar_type() == at::kDouble) return *static_cast<const double*>(loss.const_data_ptr());
  return loss.item().toDouble();
}

std::string found_text(const LossPlace& place, double value) {
  const std::string text = std::isfinite(value) ? "not finite on another rank"
                           : std::isnan(value)  ? "nan"
                           : value > 0          ? "inf"
                                                : "-inf";
  const std::string last = std::to_string(place.last_batch);
  const bool is_one = place.first_batch == place.last_batch;
  return "training_step: the loss is " + text + " in epoch " + std::to_string(place.epoch) + ", " +
         (is_one ? "batch " + last : "one of batches " + std::to_string(place.first_batch) + " to " + last) +
         ", global step " + std::to_string(place.global_step) + ".";
}

// Of the running batch alone.
LossPlace batch_place(const Run& run) {
  const int64_t batch = run.fit.epoch.batch_idx;
  return {run.progress.epoch, batch, batch, run.progress.global_step};
}

[[noreturn]] void stop(const std::string& found) {
  throw NonFiniteLossError(found +
                           " Nothing was updated with it. Look at that batch, lower the learning rate, clip gradients, "
                           "or set TrainerOptions.nonfinite_loss to skip, rollback or ignore.");
}

void follow_policy(Run& run, const std::string& found) {
  const NonFiniteLoss policy = run.fit.nonfinite_loss;
  if (policy == NonFiniteLoss::stop) stop(found);
  run.fit.epoch.window.spoilt = true;
  ++run.entry.nonfinite_losses;
  if (policy == NonFiniteLoss::skip) Console::instance().warn(found + " Its update is skipped.");
  if (policy == NonFiniteLoss::rollback) run.fit.rollback_due = found;
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
  stop(found_text(place, value));
}

bool keep_if_finite(Run& run, const at::Tensor& loss) {
  if (run.fit.nonfinite_loss == NonFiniteLoss::ignore) return true;
  const double value = loss.defined() ? loss_value(loss) : 0;
  // Ranks must agree; a single one need not.
  const bool finite = run.has_peers() ? !run.strategy->any(!std::isfinite(value)) : std::isfinite(value);
  if (!finite) follow_policy(run, found_text(batch_place(run), value));
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
  follow_policy(run, found_text(loss_place(run), value));
}

}  // namespace levin
