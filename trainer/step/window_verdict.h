// What a run does about a loss, or a gradient of a finite loss, that is nan or inf: TrainerOptions::nonfinite_loss.
//
// Note [A finite loss with a gradient that is not finite]
// sqrt, norm and pow have such gradients at 0, also where where() leaves the result out, and so has a sum that
// overflows in backward. An update with one element of nan makes the parameter nan for good, and clipping by norm all
// parameters. So gradients are judged once per window, after they are reduced and unscaled, before
// on_before_optimizer_step, clipping and the update; where the user's code runs in between, once more after it. On a
// CPU the host reads them, once; on a device, and in a recorded step, one operator sets a flag, which is read with the
// flag of the loss. With a loss scaler such a gradient counts as an overflow.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <memory>
#include <string>
#include <utility>

#include "levin/core/state.h"
#include "levin/strategies/gradient_sync.h"

namespace levin {

class KeptBuffers;
class LateCheck;
class Optimizer;
struct NonFiniteFinding;
struct StepCore;

/// Sets `flag`, () float32 on the device of `loss`, to 1 if the loss is not finite; else leaves it. Does not block.
void mark_if_not_finite(at::Tensor flag, const at::Tensor& loss);

/// Returns the text of a RankWait around reading flags of all ranks from the device; "" with a single rank.
[[nodiscard]] std::string device_wait_text(const StepCore& core);

/// The result of the checks at the end of a window.
enum class WindowResult { good, nonfinite, overflow };

/// Decides whether a window's losses and gradients may reach the weights. Losses are added as they come, and the window
/// is decided at its end; on a device the decision may be made one window later (LateCheck). Where something is not
/// finite it acts by the policy: it throws NonFiniteLossError before the update, naming epoch, batch, step and value;
/// or the window's update is skipped; or training goes back to the newest checkpoint (take_rollback). Every rank calls
/// each function, unless its comment says otherwise.
///
/// Note [A loss, or a gradient]
/// A scaled gradient that overflows is normal with 16-mixed: the step is skipped, the scale is reduced. A loss that is
/// nan or inf is not normal: the policy applies first, and the scale does not change. With `ignore`, its gradients
/// count as overflowed. Without a scaler the same policy applies to gradients. Where reading a loss would make the host
/// wait for a device, and wherever gradients have to be read anyway, losses are only added, and judged at the end of
/// their window.
class WindowVerdict {
 public:
  explicit WindowVerdict(StepCore& core);
  ~WindowVerdict();
  WindowVerdict(const WindowVerdict&) = delete;
  WindowVerdict& operator=(const WindowVerdict&) = delete;

  /// Prepares for training, once the optimizers exist.
  void begin();
  void end();
  void open_window();
  void close_window();

  // ---- losses -----------------------------------------------------------------------------------------------------
  /// Adds a loss, of one element, to the window. Returns false if it is already known that it does not count: then the
  /// policy was applied.
  [[nodiscard]] bool add(const at::Tensor& loss);
  /// Returns whether the losses (undefined: none) of all ranks are finite, or the policy is to ignore them; otherwise
  /// applies the policy. Reads the value: waits for the device, and with several ranks for the others.
  [[nodiscard]] bool add_and_read(const at::Tensor& loss);
  /// Returns whether add() only adds and losses are judged at the end of the window: if reading a loss makes the host
  /// wait, or gradients are read anyway.
  [[nodiscard]] bool defers_losses() const;

  // ---- gradients --------------------------------------------------------------------------------------------------
  /// Returns whether gradients are judged: false if the policy ignores them, or a loss scaler judges them.
  [[nodiscard]] bool checks_gradients() const;
  /// Returns () float32 on the run's device: 1 if a gradient of `optimizer` on this rank is nan or inf, otherwise 0;
  /// undefined if it need not be judged. Does not block on a device.
  [[nodiscard]] at::Tensor nonfinite_gradients(const Optimizer& optimizer) const;
  /// Returns whether a gradient of `optimizer` on this rank is nan or inf. Blocks on a device.
  [[nodiscard]] bool has_nonfinite_gradient(const Optimizer& optimizer) const;
  /// Returns whether `gradients`, of a window that is still open, are finite on all ranks, so that a checkpoint may
  /// contain them. Otherwise applies the policy now; while the run is `failing` the window is only marked as
  /// one without an update. Every rank calls it, unless the run is failing.
  [[nodiscard]] bool keeps_gradients(const State& gradients, bool failing);

  // ---- the decision -----------------------------------------------------------------------------------------------
  /// Decides about the losses added since the last decision, and `found_inf` of GradScaler::unscale_ or
  /// nonfinite_gradients() (undefined: not asked). The policy has been applied already.
  [[nodiscard]] WindowResult decide(const at::Tensor& found_inf);
  /// Returns what decide() reads, float32: a flag, 1 if the sum of the losses (undefined: none) is not finite, and
  /// `found_inf`; (2), or () without `found_inf`. Undefined if neither is needed. Does not block.
  [[nodiscard]] at::Tensor decision_flags(const at::Tensor& loss, const at::Tensor& found_inf);
  /// Decides by decision_flags() of a recorded step. With late checks it decides the window before, begins the check of
  /// this one and returns `good`. `received`: as for begin_late_check.
  [[nodiscard]] WindowResult decide_by_flags(const at::Tensor& flags, const at::Tensor& loss,
                                             const at::Tensor& received);
  /// Applies the policy to a loss, to a gradient of a finite loss, and to a gradient that on_before_optimizer_step or
  /// configure_gradient_clipping has made nan or inf on some rank.
  void act_on_loss(double value);
  void act_on_gradient();
  void act_on_changed_gradient();

  // ---- late checks (Note [Late checks]) ---------------------------------------------------------------------------
  [[nodiscard]] bool is_late() const { return late_check_ != nullptr; }
  /// Returns a flag, 1 if the window must not be updated, and in a recorded step also if an earlier one must not;
  /// undefined if there is nothing to judge. This function and the next two are called only if is_late().
  [[nodiscard]] at::Tensor late_flag(const at::Tensor& loss, const at::Tensor& received);
  [[nodiscard]] static at::Tensor with_late_flag(const at::Tensor& loss, const at::Tensor& flag);
  void begin_late_check(const at::Tensor& flag, const at::Tensor& loss, const at::Tensor& received);
  /// Takes the flags that all ranks have sent with the window's gradients, on the device: for the late check, or,
  /// without one, at once, which waits for the device.
  void receive_on_device(const at::Tensor& received);
  /// Calls LateCheck::finish, if checks are late.
  void finish_late_check() const;
  /// Does the same where all ranks do it, so that they may act on the flags: at an update, a validation, the end of an
  /// epoch.
  void finish_late_check_and_receive();

  /// Returns, once, why training must go back to the newest checkpoint; "" if it need not.
  [[nodiscard]] std::string take_rollback() { return std::exchange(rollback_due_, ""); }
  /// Returns the number of batches whose loss or gradient was not finite.
  [[nodiscard]] int64_t nonfinite_losses() const { return nonfinite_losses_; }

 private:
  void act(const NonFiniteFinding& found);
  [[nodiscard]] bool is_whole_window(const at::Tensor& loss) const;
  [[nodiscard]] WindowResult act_on_flags(bool of_loss, bool of_gradient, const at::Tensor& loss);
  [[nodiscard]] WindowResult decide_by_received_flags(const at::Tensor& loss, at::Tensor found_inf);
  [[nodiscard]] at::Tensor nonfinite_loss_flag(const at::Tensor& loss, const at::TensorOptions& flag);

  StepCore& core_;
  std::shared_ptr<KeptBuffers> kept_buffers_ = nullptr;  // with nonfinite_loss: skip, if there are any
  std::shared_ptr<LateCheck> late_check_ = nullptr;      // null: losses are checked at once
  std::string rollback_due_ = "";
  int64_t nonfinite_losses_ = 0;
};

}  // namespace levin
