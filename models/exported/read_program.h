// models/model.json of a .pt2 file, as torch.export.save of PyTorch 2.9 and later writes it. Internal.
#pragma once

#include "levin/models/exported/graph.h"
#include "levin/models/exported/json_view.h"

namespace levin::exported {

/// Throws Error with the place in the JSON where it is not as the export schema says.
[[nodiscard]] Program read_program(const JsonView& json);

}  // namespace levin::exported
