// A part of an accumulation window that was recorded: its only batch, its first, one between, its last. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "levin/core/device_work.h"
#include "levin/trainer/run/window.h"
#include "levin/trainer/step/check_replay.h"
#include "levin/trainer/step/check_schedule.h"
#include "levin/trainer/step/step_notes.h"

namespace levin {

struct RecordedPart {
  static constexpr size_t kCount = 4;
  [[nodiscard]] static size_t index(const WindowPart& window) {
    return (window.first ? 0U : 1U) + (window.last ? 0U : 2U);
  }

  std::unique_ptr<Recording> recording = nullptr;
  StepNotes notes = {};
  at::Tensor loss = {};
  at::Tensor unread_loss = {};  // Window::unread_loss after it
  std::string problem = "";     // what the step keeps, a clause
  int64_t replays = 0;
  CheckSchedule checks = {};
  bool is_checked = false;  // its last replay was

  /// The loss as it is now. The next replay writes to the loss's own memory.
  [[nodiscard]] at::Tensor copy_of_loss() const;
  /// What users get copies of after each replay.
  [[nodiscard]] StepResults handed_out() const;
  /// What a replay and the step must agree in besides the memory that both change.
  [[nodiscard]] StepResults compared(const std::vector<at::Tensor>& gradients) const;
  /// Adds all tensors that it holds.
  void add_tensors(std::vector<at::Tensor>& to) const;
};

}  // namespace levin
