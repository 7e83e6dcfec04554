// Compiled without LibTorch's include folder; see CMakeLists.txt.
#include "levin/core/process/log_text.h"

#include <spdlog/fmt/fmt.h>

namespace levin::log::detail {

std::string fill(std::string_view text, std::span<const Argument> values) {
  std::string result;
  size_t next = 0;
  const auto put_value = [&](std::string_view spec) -> const char* {
    const bool as_number = !spec.empty() && std::string_view("feg").find(spec.back()) != std::string_view::npos;
    const std::string format = "{:" + std::string(spec) + "}";
    std::visit(
        [&](auto value) {
          if constexpr (std::is_integral_v<decltype(value)>) {  // libfmt refuses {:.1f} for an integer
            if (as_number) return void(result += fmt::format(fmt::runtime(format), static_cast<double>(value)));
          }
          if constexpr (std::is_same_v<decltype(value), uint64_t>) {  // libfmt refuses {:+} for an unsigned integer
            __extension__ using Signed = __int128;
            return void(result += fmt::format(fmt::runtime(format), static_cast<Signed>(value)));
          }
          result += fmt::format(fmt::runtime(format), value);
        },
        values[next++]);
    return nullptr;
  };
  walk(
      text, [&](std::string_view piece) { result += piece; }, put_value);
  return result;
}

}  // namespace levin::log::detail
