// std::source_location for clang before 16; clang-tidy and the fuzz targets include it before everything else.
#pragma once
#include <cstdint>
#include <source_location>
#ifndef __cpp_lib_source_location
namespace std {
struct source_location {
  static constexpr source_location current() noexcept { return {}; }
  constexpr const char* file_name() const noexcept { return ""; }
  constexpr const char* function_name() const noexcept { return ""; }
  constexpr uint_least32_t line() const noexcept { return 0; }
  constexpr uint_least32_t column() const noexcept { return 0; }
};
}  // namespace std
#endif
