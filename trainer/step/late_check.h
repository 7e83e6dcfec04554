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
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "levin/strategies/late_read.h"
#include "levin/strategies/rank_notes.h"
#include "levin/trainer/step/nonfinite_loss.h"

namespace levin {

struct Fit;
struct Run;

class LateCheck {
 public:
  /// Null if there is none, or if it must be made at once: on a CPU, which waits for nothing; with one rank that
  /// ignores it; with a policy that skips or goes back, or a loss scaler, where the host acts on the result; with
  /// several ranks whose notes do not stay on the device; and if something before the update, or the update, is host
  /// code.
  [[nodiscard]] static std::shared_ptr<LateCheck> make(const Run& run);

  explicit LateCheck(at::Device device);

  /// () float32 on the device: 1 if `loss`, () the window's sum of losses, or one that was seen before is not finite,
  /// else 0. Does not block. The loss stays as it is.
  [[nodiscard]] const at::Tensor& flag(const at::Tensor& loss);
  /// 1 if one of all ranks' losses is not finite, from the notes that they sent with the window's gradients:
  /// (kRankNotes) on the device.
  [[nodiscard]] static at::Tensor flag_of_ranks(const at::Tensor& heard);
  /// The same, or if it was 1 before: for recorded steps.
  [[nodiscard]] const at::Tensor& kept_flag_of_ranks(const at::Tensor& heard);
  /// Sets `flag`, one of those above, to 1 also where a gradient of the window that the policy does not ignore is not
  /// finite, on any rank. Does not block. Every rank.
  void add_gradients(const Run& run, at::Tensor flag) const;
  /// Returns (2) float64: the loss and the flag of a recorded step, which begin() reads together in place of the loss.
  [[nodiscard]] static at::Tensor with_flag(const at::Tensor& loss, const at::Tensor& flag);
  /// Begins the check of a window whose update was launched. `flag`: what the update was given; `loss`: () the window's
  /// sum of losses, or with_flag(), which is read before the next replay writes to it; `heard`: the notes of all ranks,
  /// undefined with a single one. Does not block.
  void begin(const Run& run, const at::Tensor& flag, const at::Tensor& loss, const at::Tensor& heard);
  /// Does nothing if no check is open. Blocks until the device has computed that window. Throws NonFiniteLossError.
  void finish();
  /// The other notes of windows that were finished, once.
  [[nodiscard]] RankNotes take_heard() { return std::exchange(heard_, RankNotes()); }

 private:
  at::Tensor flag_, one_;  // of the device; made once, because each of them would be a kernel in every step
  LateRead flag_read_;     // or of with_flag()
  LateRead notes_read_;    // of what all ranks said
  at::Tensor loss_ = {};   // of the open window, not recorded: read if something in it is not finite
  bool reads_notes_ = false;
  RankNotes heard_ = {};
  std::optional<LossPlace> open_ = std::nullopt;
};

/// For a RankWait around reading what the device knows of all ranks; "" with a single one.
[[nodiscard]] std::string device_wait_text(const Run& run);
/// What all ranks said with the window's gradients, on the device: for the late check, or heard now if there is none,
/// which waits for the device.
void hear_device(Run& run, const at::Tensor& heard);
/// LateCheck::finish of the fit's check, if it has one.
void finish_late_check(const Fit& fit);
/// The same where all ranks do it, and so may act on what they said: an update, a validation, the end of an epoch.
void finish_late_check_and_hear(Run& run);

}  // namespace levin
