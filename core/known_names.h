// What an error says about a name that is not among those there are.
#pragma once

#include <string>
#include <vector>

namespace levin {

/// The names in alphabetical order, whatever their case, separated by commas: a reader looks for one of many.
[[nodiscard]] std::string sorted_names(std::vector<std::string> names);

/// " Did you mean "Dog"? Known: Cat, Dog." of `known`; without the question if none is near to `name`.
[[nodiscard]] std::string known_names(const std::string& name, const std::vector<std::string>& known);

}  // namespace levin
