// Whether this build has a sanitizer: it has a malloc of its own, and its time and memory are not the program's.
#pragma once

namespace levin::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace levin::test
