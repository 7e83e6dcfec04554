// The text of an exception, also of one that is not a std::exception.
#pragma once

#include <exception>
#include <string>

namespace levin {

/// what(), or "an exception of type int, which is not a std::exception".
[[nodiscard]] std::string exception_text(const std::exception_ptr& error);

/// what(), without the stack that LibTorch adds to it; the library's bare "map::at" is followed by what it means.
[[nodiscard]] std::string exception_text(const std::exception& error);

}  // namespace levin
