#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
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
  at::Tensor flags = {};  // of window_flags(); undefined: not needed, or the window has not ended
  at::Tensor loss = {};   // the sum of the losses that the flags are about
};

/// Trainer::log during capture. Throws Error for a value that is not on the device.
void note_logged(Run& run, std::string_view name, const at::Tensor& value, const LogOptions& options);
/// A number from the host would be the same in every replay: throws Error.
[[noreturn]] void refuse_logged(const Run& run, std::string_view name);

/// For messages: names the option.
[[nodiscard]] std::string about_graphs(const std::string& text);

}  // namespace levin
