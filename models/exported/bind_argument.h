// Puts a node's arguments into the order of its operator's schema. Internal.
#pragma once

#include <c10/core/Device.h>

#include <string>

#include "levin/models/exported/bound_graph.h"

namespace levin::exported {

/// Fills `call` with constants, defaults and where values go; what is wrong, in words that follow the operator's name,
/// or
/// "". Devices equal to `exported_on` become the module's.
[[nodiscard]] std::string bind_arguments(const Node& node, const c10::OperatorHandle& op, c10::Device exported_on,
                                         BoundCall& call);

}  // namespace levin::exported
