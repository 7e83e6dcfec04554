// The differences of two checkpoints: tensors by name, values by the path of their keys.
#pragma once

#include <string>
#include <vector>

#include "levin/checkpoint/checkpoint_file.h"

namespace levin {

/// One line for each difference; none if the files hold the same bits and values. Reads one pair of tensors at a time.
/// Throws CheckpointError if a file is damaged.
[[nodiscard]] std::vector<std::string> checkpoint_differences(const CheckpointFile& a, const CheckpointFile& b);

}  // namespace levin
