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

#include <ATen/core/Tensor.h>

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

/// For a RankWait around reading what the device knows of all ranks; "" with a single one.
[[nodiscard]] std::string device_wait_text(const StepCore& core);

/// The result of the checks at the end of a window.
enum class WindowResult { good, nonfinite, overflow };

/// Decides whether a window's losses and gradients may reach the weights. Losses are added as they come, and the window
/// is decided at its end; on a device the decision may be made one window later (LateCheck). Where something is not
/// finite it acts by the policy: it throws NonFiniteLossError before the update, naming epoch, batch, step and value;
/// or the window's update is skipped; or training goes back to the newest checkpoint (take_rollback). Every rank calls
/// each function, except where it says otherwise.
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

  /// Before training, once the optimizers are there.
  void begin();
  void end();
  void open_window();
  void close_window();

  // ---- losses -----------------------------------------------------------------------------------------------------
  /// Adds a loss, of one element, to the window. Returns false if it is known by now that it does not count: then the
  /// policy was applied.
  [[nodiscard]] bool add(const at::Tensor& loss);
  /// Returns whether the losses (undefined: none) of all ranks are finite, or the policy is to ignore them; otherwise
  /// applies the policy. Reads the value: waits for the device, and with several ranks for the others.
  [[nodiscard]] bool add_and_read(const at::Tensor& loss);
  /// Whether add() only adds: if reading a loss makes the host wait, or gradients are read anyway.
  [[nodiscard]] bool notes_losses() const;

  // ---- gradients --------------------------------------------------------------------------------------------------
  /// Whether gradients are judged: unless the policy ignores them, or a loss scaler does it.
  [[nodiscard]] bool checks_gradients() const;
  /// () float32 on the run's device, 1 if a gradient of `optimizer` on this rank is nan or inf, else 0; undefined if it
  /// need not be judged. Does not block on a device.
  [[nodiscard]] at::Tensor nonfinite_gradients(const Optimizer& optimizer) const;
  /// Whether a gradient of `optimizer` on this rank is nan or inf. Blocks on a device.
  [[nodiscard]] bool has_nonfinite_gradient(const Optimizer& optimizer) const;
  /// Returns whether `gradients`, of a window that is still open, are finite on all ranks, so that a checkpoint may
  /// contain them. Otherwise applies the policy now; while the run is `failing` the window is only marked as one
  /// without an update. Every rank, unless the run is failing.
  [[nodiscard]] bool keeps_gradients(const State& gradients, bool failing);

  // ---- the decision -----------------------------------------------------------------------------------------------
  /// Decides about the losses added since the last decision, and `found_inf` of GradScaler::unscale_ or
  /// nonfinite_gradients() (undefined: not asked). The policy has been applied already.
  [[nodiscard]] WindowResult decide(const at::Tensor& found_inf);
  /// What decide() reads, float32: 1 where the sum of the losses (undefined: none) is not finite, and where `found_inf`
  /// says so; without the latter one number (). Undefined if neither is needed. Does not block.
  [[nodiscard]] at::Tensor decision_flags(const at::Tensor& loss, const at::Tensor& found_inf);
  /// Decides by decision_flags(), of a recorded step. With late checks `good`: the window before is decided, and this
  /// one's check is begun; `received` as for begin_late_check.
  [[nodiscard]] WindowResult decide_by_flags(const at::Tensor& flags, const at::Tensor& loss,
                                             const at::Tensor& received);
  /// Applies the policy to a loss, to a gradient of a finite loss, and to a gradient that on_before_optimizer_step or
  /// configure_gradient_clipping has made nan or inf on some rank.
  void act_on_loss(double value);
  void act_on_gradient();
  void act_on_changed_gradient();

  // ---- late checks (Note [Late checks]) ---------------------------------------------------------------------------
  [[nodiscard]] bool is_late() const { return late_check_ != nullptr; }
  /// Undefined if there is nothing to judge: 1 where the window must not be updated, and in a recorded step also if
  /// that was so before. Only if is_late(); so are the next two.
  [[nodiscard]] at::Tensor late_flag(const at::Tensor& loss, const at::Tensor& received);
  [[nodiscard]] static at::Tensor with_late_flag(const at::Tensor& loss, const at::Tensor& flag);
  void begin_late_check(const at::Tensor& flag, const at::Tensor& loss, const at::Tensor& received);
  /// Takes the flags that all ranks have sent with the window's gradients, on the device: for the late check, or now if
  /// there is none, which waits for the device.
  void receive_on_device(const at::Tensor& received);
  /// LateCheck::finish, if checks are late.
  void finish_late_check() const;
  /// Same as finish_late_check, where all ranks do it, and so may act on the flags: an update, a validation, the end of
  /// an epoch.
  void finish_late_check_and_receive();

  /// Why training must go back to the newest checkpoint, once; "": it need not.
  [[nodiscard]] std::string take_rollback() { return std::exchange(rollback_due_, ""); }
  /// Batches whose loss or gradient was not finite.
  [[nodiscard]] int64_t nonfinite_losses() const { return nonfinite_losses_; }

 private:
  void act(const NonFiniteFinding& found);
  [[nodiscard]] bool is_whole_window(const at::Tensor& loss) const;
  [[nodiscard]] WindowResult act_on_flags(bool of_loss, bool of_gradient, const at::Tensor& loss);
  [[nodiscard]] WindowResult decide_by_notes(const at::Tensor& loss, at::Tensor found_inf);
  [[nodiscard]] at::Tensor nonfinite_loss_flag(const at::Tensor& loss, const at::TensorOptions& flag);

  StepCore& core_;
  std::shared_ptr<KeptBuffers> kept_buffers_ = nullptr;  // with nonfinite_loss: skip, if there are any
  std::shared_ptr<LateCheck> late_check_ = nullptr;      // null: losses are checked at once
  std::string rollback_due_ = "";
  int64_t nonfinite_losses_ = 0;
};

}  // namespace levin
