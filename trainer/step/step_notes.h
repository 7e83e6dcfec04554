#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/trainer/hook.h"
#include "levin/trainer/metrics.h"

namespace levin {

struct Run;

/// What the host does after each replay of a part of a window.
struct StepNotes {
  struct Logged {
    Hook hook;
    std::string name;
    at::Tensor value;  // on the device: overwritten by each replay
    LogOptions options;
  };
  std::vector<Logged> logged = {};
  std::vector<std::pair<std::string, at::Tensor>> outputs = {};  // of step_output, overwritten as well
  at::Tensor flags = {};  // of window_flags(); undefined: not needed, or the window has not ended
  at::Tensor loss = {};   // the sum of the losses that the flags are about
  // With several ranks, where their gradients are reduced: this rank's notes, which the host writes before each replay,
  // and those of all ranks after it (GradientSync::backward_recorded).
  at::Tensor said = {};
  at::Tensor heard = {};

  bool leaves_update = false;  // the window's update is not part of it; the host performs it afterwards
  bool step_runs = false;      // it is run while it is recorded, so what cannot be recorded need not end the run
  std::string refusal = "";    // why it cannot be recorded, a clause; "": it can

  /// Adds what the step leaves for the host.
  void add_results(std::vector<at::Tensor>& to) const;
};

/// Trainer::log while a step is recorded.
void note_logged(Run& run, std::string_view name, const at::Tensor& value, const LogOptions& options);
/// A number from the host would be the same in every replay: as refuse_recording.
void refuse_logged(Run& run, std::string_view name);

/// Within a step that is being recorded: notes that it cannot be, for the reason `why` (a clause). Throws Error if that
/// means that it cannot go on (a captured step does not run).
void refuse_recording(Run& run, const std::string& why);

/// For messages: names the option.
[[nodiscard]] std::string about_recording(const std::string& text);

}  // namespace levin
