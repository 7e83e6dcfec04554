// The operators that a program from a stranger may call. Internal.
#pragma once

#include <ATen/core/function_schema.h>

namespace levin::exported {

/// Whether torch.export writes calls of this ATen operator for models, and the operator cannot reach memory outside of
/// its tensors once check_arguments.h has seen its arguments. See docs/exported_models.md for the operators that are
/// left out.
[[nodiscard]] bool is_allowed_operator(const c10::FunctionSchema& schema);

}  // namespace levin::exported
