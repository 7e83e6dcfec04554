// Checks of Python's layers that their operators lack, and that an export leaves out. Internal.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <vector>

namespace levin::exported {

/// The check of an operator's arguments, which throws Error, or nothing. Those of torch.nn.functional's batch_norm,
/// instance_norm and group_norm: without them a batch of one value per channel gives a variance that is nan.
[[nodiscard]] std::function<void(const std::vector<c10::IValue>&)> layer_check(const c10::FunctionSchema& schema);

}  // namespace levin::exported
