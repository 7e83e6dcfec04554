// Counts the fields of an aggregate, so that a test can tell when one is missing from its fields() list:
//
//   EXPECT_EQ(levin::testing::field_count<TimerOptions>(), field_names<TimerOptions>().size());
#pragma once

#include <algorithm>
#include <cstddef>

namespace levin::testing {

// T{{}, {}, …} compiles with as many {} as T has fields, and with fewer; up to 56 are tried, most first.
#define LEVIN_BRACES_1 \
  {}
#define LEVIN_BRACES_2 \
  LEVIN_BRACES_1, {}
#define LEVIN_BRACES_3 \
  LEVIN_BRACES_2, {}
#define LEVIN_BRACES_4 \
  LEVIN_BRACES_3, {}
#define LEVIN_BRACES_5 \
  LEVIN_BRACES_4, {}
#define LEVIN_BRACES_6 \
  LEVIN_BRACES_5, {}
#define LEVIN_BRACES_7 \
  LEVIN_BRACES_6, {}
#define LEVIN_BRACES_8 \
  LEVIN_BRACES_7, {}
#define LEVIN_TRY_8(before, ...)                                                \
  if constexpr (requires { T{__VA_ARGS__ LEVIN_BRACES_8}; }) return before + 8; \
  if constexpr (requires { T{__VA_ARGS__ LEVIN_BRACES_7}; }) return before + 7; \
  if constexpr (requires { T{__VA_ARGS__ LEVIN_BRACES_6}; }) return before + 6; \
  if constexpr (requires { T{__VA_ARGS__ LEVIN_BRACES_5}; }) return before + 5; \
  if constexpr (requires { T{__VA_ARGS__ LEVIN_BRACES_4}; }) return before + 4; \
  if constexpr (requires { T{__VA_ARGS__ LEVIN_BRACES_3}; }) return before + 3; \
  if constexpr (requires { T{__VA_ARGS__ LEVIN_BRACES_2}; }) return before + 2; \
  if constexpr (requires { T{__VA_ARGS__ LEVIN_BRACES_1}; }) return before + 1; \
  static_assert(true)

template <class T>
consteval size_t field_count() {
  LEVIN_TRY_8(48, LEVIN_BRACES_8, LEVIN_BRACES_8, LEVIN_BRACES_8, LEVIN_BRACES_8, LEVIN_BRACES_8, LEVIN_BRACES_8, );
  LEVIN_TRY_8(40, LEVIN_BRACES_8, LEVIN_BRACES_8, LEVIN_BRACES_8, LEVIN_BRACES_8, LEVIN_BRACES_8, );
  LEVIN_TRY_8(32, LEVIN_BRACES_8, LEVIN_BRACES_8, LEVIN_BRACES_8, LEVIN_BRACES_8, );
  LEVIN_TRY_8(24, LEVIN_BRACES_8, LEVIN_BRACES_8, LEVIN_BRACES_8, );
  LEVIN_TRY_8(16, LEVIN_BRACES_8, LEVIN_BRACES_8, );
  LEVIN_TRY_8(8, LEVIN_BRACES_8, );
  LEVIN_TRY_8(0, );
  return 0;
}

/// Whether fields() lists the members in the order in which C++ initializes them.
template <class T>
bool in_declared_order() {
  const auto all = T::fields();
  return std::is_sorted(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
}

#undef LEVIN_BRACES_1
#undef LEVIN_BRACES_2
#undef LEVIN_BRACES_3
#undef LEVIN_BRACES_4
#undef LEVIN_BRACES_5
#undef LEVIN_BRACES_6
#undef LEVIN_BRACES_7
#undef LEVIN_BRACES_8
#undef LEVIN_TRY_8

}  // namespace levin::testing
