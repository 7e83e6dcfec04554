// Memory that a recorded step has made and that is still in use after it. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <vector>

#include "levin/core/device_work.h"

namespace levin {

/// Why the step cannot be replayed: `who` (a hook) keeps a tensor of its batch that is none of `known`, and each replay
/// would overwrite it. A clause; "" if it keeps none.
[[nodiscard]] std::string problem_of_left_memory(const Recording& recording, const std::vector<at::Tensor>& known,
                                                 std::string_view who);

/// Whether another tensor than those of `known`, among which `result` is, has the memory of `result`. While the step is
/// recorded: a recording has its memory too.
[[nodiscard]] bool is_kept_elsewhere(const at::Tensor& result, const std::vector<at::Tensor>& known);

}  // namespace levin
