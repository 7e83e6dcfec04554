// A part of an accumulation window that was recorded: its only batch, its first, a middle one or its last. Internal.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "levin/core/device_work.h"
#include "levin/trainer/step/recorded_steps.h"
#include "levin/trainer/step/window.h"

namespace levin {

// Note [When a replay is checked]
// A captured graph is what the GPU ran. A tape may miss something that the host did, so instead of some replays the
// step itself runs, and a replay from the same memory and random numbers must be bitwise identical (check_replay.h).
// The step's own results count. At the first difference the run continues eagerly. Checked are a recording's replays 1,
// 2, 4, 8 and 16, and in windows all 2^k; the batches 2^k and 60 * 2^k of the fit, at which most "every n batches"
// fall; and the first replay of an epoch, before which hooks may have changed anything: of epochs 1, 2, 4, 8 and so on,
// and of each that begins kFewReplays after a check.

/// The replays at which a recording is checked.
class CheckSchedule {
 public:
  /// A check takes about as long as three steps, so it must be rare.
  static constexpr int64_t kFewReplays = 256;
  static constexpr int64_t kEarlyReplays = 16;

  void record_in(int64_t epoch) { epoch_ = epoch; }

  /// Returns whether a replay is to be checked. `replay`: its number, from 1; `epoch` and `batch`: those completed
  /// before it, over the fit; `in_windows`: windows have several batches. Called once for each replay.
  [[nodiscard]] bool is_due(int64_t replay, int64_t epoch, int64_t batch, bool in_windows) {
    const bool begins_epoch = std::exchange(epoch_, epoch) != epoch;
    const bool checks_epoch = begins_epoch && (is_power(epoch) || replay - last_check_ >= kFewReplays);
    const bool is_round = is_power(batch) || (batch % 60 == 0 && is_power(batch / 60));
    const bool is_early = is_power(replay) && (replay <= kEarlyReplays || in_windows);
    if (!checks_epoch && !is_round && !is_early) return false;
    last_check_ = replay;
    return true;
  }

 private:
  [[nodiscard]] static bool is_power(int64_t number) { return std::has_single_bit(static_cast<uint64_t>(number)); }

  int64_t epoch_ = 0;  // of the last replay
  int64_t last_check_ = 0;
};

/// The recording of one part, and the tensors that its replays write.
struct RecordedPart : RecordedRun {
  static constexpr size_t kCount = 4;
  [[nodiscard]] static size_t index(const WindowPart& window) {
    return (window.first ? 0U : 1U) + (window.last ? 0U : 2U);
  }

  std::unique_ptr<Recording> recording = nullptr;
  at::Tensor loss = {};
  at::Tensor unread_loss = {};  // Window::unread_loss after it
  int64_t replays = 0;
  CheckSchedule checks = {};
  bool is_checked = false;  // its last replay was

  /// Returns a copy of the loss. The next replay writes to the loss's own memory.
  [[nodiscard]] at::Tensor copy_of_loss() const;
  /// Returns the tensors of which users get copies after each replay.
  [[nodiscard]] StepResults handed_out() const;
  /// Returns the tensors in which a replay and the step must agree, in addition to the memory that both change.
  [[nodiscard]] StepResults compared(const std::vector<at::Tensor>& gradients) const;
  /// Adds all tensors that it holds to a list.
  void add_tensors(std::vector<at::Tensor>& to) const;
};

}  // namespace levin
