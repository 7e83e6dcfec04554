// Puts a node's arguments into the order of its operator's schema. Internal.
#pragma once

#include <ATen/core/jit_type_base.h>
#include <c10/core/Device.h>

#include <string>

#include "levin/models/exported/bound_graph.h"

namespace levin::exported {

/// Fills `call` with constants, defaults and where values go; what is wrong, in words that follow the operator's name,
/// or
/// "". Devices equal to `exported_on` become the module's.
[[nodiscard]] std::string bind_arguments(const Node& node, const c10::OperatorHandle& op, c10::Device exported_on,
                                         BoundCall& call);

/// The type itself if it is not optional, else what it holds.
[[nodiscard]] c10::TypePtr without_optional(const c10::TypePtr& type);

}  // namespace levin::exported
