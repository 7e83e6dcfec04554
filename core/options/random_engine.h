// Saves the random engines of the standard library, so that a checkpoint contains the generator of a loop of one's own.
//
//   state.set("generator", generator);                      generator = state.get<std::mt19937>("generator");
#pragma once

#include <concepts>
#include <istream>
#include <locale>
#include <ostream>
#include <random>
#include <sstream>
#include <string>

#include "levin/core/options/value.h"

namespace levin {

/// A generator whose position can be written and read: std::mt19937 and the others of <random>, not random_device.
template <class T>
concept RandomEngine = std::uniform_random_bit_generator<T> &&
    requires(std::ostream& to, std::istream& from, T& engine) {
  to << engine;
  from >> engine;
};

template <RandomEngine T>
struct ValueType<T> {
  static std::string name() { return "random engine"; }
  static bool read(const ConfigNode& node, T& value, const std::string& path, Problems& problems) {
    std::istringstream text(node.text);
    text.imbue(std::locale::classic());
    T saved;
    if (!(text >> saved) || !(text >> std::ws).eof()) {
      return detail::expected("the state of a random engine of the same class", node, path, problems);
    }
    value = saved;
    return true;
  }
  static ConfigNode write(const T& value) {
    std::ostringstream text;
    text.imbue(std::locale::classic());
    text << value;
    return ConfigNode::scalar(text.str(), true);
  }
};

}  // namespace levin
