// What a plain scalar of YAML means, by YAML 1.2's core schema.
#pragma once

#include <cstdint>
#include <string>

namespace levin {

/// Whether a plain (unquoted) scalar means a string: not null, a bool or a number.
[[nodiscard]] bool reads_as_string(const std::string& text);

namespace detail {

[[nodiscard]] bool parse_int(const std::string& text, int64_t& value);
[[nodiscard]] bool parse_double(const std::string& text, double& value);
[[nodiscard]] bool parse_bool(const std::string& text, bool& value);

}  // namespace detail

}  // namespace levin
