// Whether all numbers in a value are finite, in whatever containers.
#pragma once

#include <cmath>
#include <concepts>
#include <optional>
#include <type_traits>
#include <variant>

namespace levin::detail {

template <class T>
constexpr bool kIsVariant = false;
template <class... Ts>
constexpr bool kIsVariant<std::variant<Ts...>> = true;

/// A container of elements of its value_type; not a path, whose elements are paths.
template <class T>
concept IsContainer = requires(const T& value) {
  { *value.begin() } -> std::convertible_to<const typename T::value_type&>;
  value.end();
}
&&!requires(const T& value) {
  value.native();
};

/// The first number that is nan or infinite in a number, an optional, a variant, or a container of such; fields of
/// structs are not checked.
template <class T>
std::optional<double> first_non_finite(const T& value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) return value;
  } else if constexpr (kIsVariant<T>) {
    return std::visit([](const auto& held) { return first_non_finite(held); }, value);
  } else if constexpr (requires {
                         value.has_value();
                         *value;
                       }) {
    if (value.has_value()) return first_non_finite(*value);
  } else if constexpr (requires {
                         value.first;
                         value.second;
                       }) {
    const auto found = first_non_finite(value.first);
    return found ? found : first_non_finite(value.second);
  } else if constexpr (IsContainer<T>) {
    for (const auto& item : value) {
      if (const auto found = first_non_finite(item)) return found;
    }
  }
  return std::nullopt;
}

}  // namespace levin::detail
