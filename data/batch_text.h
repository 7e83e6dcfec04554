// A batch in messages.
#pragma once

#include <string>

#include "levin/data/batch.h"

namespace levin {

/// Shape and type of each tensor, after its name if it has one: "image (32, 1, 28, 28) Float, (32) Long"; "no tensor".
[[nodiscard]] std::string batch_text(const Batch& batch);

}  // namespace levin
