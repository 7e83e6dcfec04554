// Calls of any operators that a program may contain, with any arguments of the right types.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

namespace levin::fuzz {

/// Returns all operators that a program may contain, by their names.
[[nodiscard]] const std::vector<c10::OperatorHandle>& program_operators();

/// Returns calls of `operators` for add_calls() in models/forged_program.h, after tensor_calls(). The same bytes give
/// the same calls.
[[nodiscard]] nlohmann::json calls_of(std::string_view bytes, const std::vector<c10::OperatorHandle>& operators);

}  // namespace levin::fuzz
