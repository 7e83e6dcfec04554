// Describes a batch in messages.
#pragma once

#include <string>

#include "levin/data/batch.h"

namespace levin {

/// Returns name, shape and type of each tensor: "image (32, 1, 28, 28) Float, (32) Long", or "no tensor".
[[nodiscard]] std::string batch_text(const Batch& batch);

}  // namespace levin
