// Calls of any operators that a program may contain, with any arguments of the right types.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace levin::fuzz {

/// For replace_calls() in models/forged_program.h, after tensor_calls(). The same bytes give the same calls.
nlohmann::json calls_of(std::string_view bytes);

}  // namespace levin::fuzz
