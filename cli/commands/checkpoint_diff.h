// The differences of two checkpoints: tensors by name, values by the path of their keys.
#pragma once

#include <string>
#include <vector>

#include "levin/checkpoint/checkpoint_file.h"

namespace levin {

enum class Compared { everything, tensors };

/// One line for each difference; none if the files hold the same bits and values. Paths are compared from the folder of
/// each file's run, so that runs in two folders can be equal. Reads one pair of tensors at a time. Throws
/// CheckpointError if a file is damaged.
[[nodiscard]] std::vector<std::string> checkpoint_differences(const CheckpointFile& a, const CheckpointFile& b,
                                                              Compared compared = Compared::everything);

}  // namespace levin
