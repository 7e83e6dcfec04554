// Limits of a YAML file, so that a malicious one takes under a second.
#pragma once

#include <cstddef>

namespace levin {

inline constexpr size_t kMaxYamlFileBytes = 1 << 19;  // yaml-cpp takes up to 230 bytes for each
inline constexpr size_t kMaxYamlNodes = 100'000;      // keys and repetitions by aliases count too
inline constexpr size_t kMaxYamlTextBytes = 8 << 20;  // of all scalars together, aliases written out
inline constexpr size_t kMaxYamlNesting = 100;        // lists and maps within one another

}  // namespace levin
