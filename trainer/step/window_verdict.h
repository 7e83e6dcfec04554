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
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "levin/core/state.h"
#include "levin/strategies/device_copies.h"
#include "levin/strategies/gradient_sync.h"

namespace levin {

class Optimizer;
struct StepCore;

/// What was found, a sentence, and what the user can do about it, the beginning of one.
struct NonFiniteFinding {
  std::string text;
  const char* advice;
};

/// The batches from which a loss, or a gradient, was computed.
struct LossPlace {
  int64_t epoch = 0;
  int64_t first_batch = 0;  // of its epoch
  int64_t last_batch = 0;
  int64_t global_step = 0;
};
/// Of the running window's losses.
[[nodiscard]] LossPlace loss_place(const StepCore& core);
/// Throws NonFiniteLossError about a loss that was not used.
[[noreturn]] void stop_for_loss(const LossPlace& place, double value);
/// Throws NonFiniteLossError about a gradient that was not used.
[[noreturn]] void stop_for_gradient(const LossPlace& place);

/// Sets `flag`, () float32 on the device of `loss`, to 1 if the loss is not finite; else leaves it. Does not block.
void mark_if_not_finite(at::Tensor flag, const at::Tensor& loss);

/// Sets `flag`, () float32, to 1 if a gradient of `optimizer` is nan or inf; else leaves it. `one`: () float32 on the
/// same device. Does not block.
void mark_nonfinite_gradients(at::Tensor flag, const at::Tensor& one, const Optimizer& optimizer);

/// Copies of a module's floating-point buffers at the beginning of an accumulation window. A batch whose inputs contain
/// nan would otherwise leave nan in running statistics (BatchNorm), although its update is skipped.
class KeptBuffers {
 public:
  /// Null if the policy is not to skip, or if the module has no such buffer.
  [[nodiscard]] static std::shared_ptr<KeptBuffers> make(const StepCore& core);

  explicit KeptBuffers(std::vector<at::Tensor> buffers);
  /// At the beginning of a window. Does not block on a device.
  void save();
  /// Buffers that are nan or inf, and were finite when they were saved, get the saved values. Blocks on a device.
  void restore_nonfinite();
  /// At the window's end: they get them again, because it may have found out late that one of its batches is bad, and
  /// then none of them counts.
  void end_window();

 private:
  std::vector<at::Tensor> buffers_, saved_;
  std::vector<size_t> restored_ = {};
};

// Checks a window's loss and gradients on a device while the device computes the next window: with nonfinite_loss:
// stop, the host has nothing to decide before that.
//
// Note [Late checks]
// The device itself leaves out the update of a window whose loss or gradient is not finite (Optimizer::step_unless).
// The host learns of it before it launches the next update, or before anything is to be kept: a checkpoint, a
// validation, the end of an epoch. So nothing is ever updated with such a loss, and no state is kept that counts its
// update; the error comes one window later, and names the batch. With several ranks the same flag comes from what they
// said with their gradients, and the host hears the rest of it (a stop, a signal) one window later too, all ranks at
// the same place. A recorded window is launched as a whole, with its update, before the host reads the one before, or
// the device would wait for that: its flag also holds the flags of all windows before, so after such a loss nothing is
// updated.

class LateCheck {
 public:
  /// Null if there is none, or if it must be made at once: on a CPU, which waits for nothing; with one rank that
  /// ignores it; with a policy that skips or goes back, or a loss scaler, where the host acts on the result; with
  /// several ranks whose notes do not stay on the device; and if something before the update, or the update, is host
  /// code.
  [[nodiscard]] static std::shared_ptr<LateCheck> make(const StepCore& core);

  explicit LateCheck(at::Device device);

  /// () float32 on the device: 1 if `loss`, () the window's sum of losses, or one that was seen before is not finite,
  /// else 0. Does not block. The loss is unchanged.
  [[nodiscard]] const at::Tensor& flag(const at::Tensor& loss);
  /// 1 if one of all ranks' losses is not finite, from the notes that they sent with the window's gradients:
  /// (kRankFlags) on the device.
  [[nodiscard]] static at::Tensor flag_of_ranks(const at::Tensor& received_flags);
  /// The same, or if it was 1 before: for recorded steps.
  [[nodiscard]] const at::Tensor& kept_flag_of_ranks(const at::Tensor& received_flags);
  /// Sets `flag`, one of those above, to 1 also where a gradient of the window that the policy does not ignore is not
  /// finite, on any rank. Does not block. Every rank.
  void add_gradients(const StepCore& core, at::Tensor flag) const;
  /// Returns (2) float64: the loss and the flag of a recorded step, which begin() reads together in place of the loss.
  [[nodiscard]] static at::Tensor with_flag(const at::Tensor& loss, const at::Tensor& flag);
  /// Begins the check of a window whose update was launched. `flag`: what the update was given; `loss`: () the window's
  /// sum of losses, or with_flag(), which is read before the next replay writes to it; `heard`: the notes of all ranks,
  /// undefined with a single one. Does not block.
  void begin(const StepCore& core, const at::Tensor& flag, const at::Tensor& loss, const at::Tensor& received_flags);
  /// Does nothing if no check is open. Blocks until the device has computed that window. Throws NonFiniteLossError.
  void finish();
  /// The other notes of windows that were finished, once.
  [[nodiscard]] RankFlags take_received_flags() { return std::exchange(received_flags_, RankFlags()); }

 private:
  at::Tensor flag_, one_;  // of the device; made once, because each of them would be a kernel in every step
  LateRead flag_read_;     // or of with_flag()
  LateRead flags_read_;    // of what all ranks said
  at::Tensor loss_ = {};   // of the open window, not recorded: read if something in it is not finite
  bool reads_flags_ = false;
  RankFlags received_flags_ = {};
  std::optional<LossPlace> open_ = std::nullopt;
};

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
