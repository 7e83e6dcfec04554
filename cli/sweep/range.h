// The values that a sweep tries for one key of a run file: a choice of values, or a range of numbers.
//
//   space:
//     model.hidden: {choice: [64, 128, 256]}
//     optimizer.lr: {log_uniform: [1e-4, 1e-1]}
//     model.layers: {int: [1, 8], step: 1, log: false}
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "levin/core/config_node.h"
#include "levin/core/value.h"

namespace levin {

struct Range {
  enum class Kind { choice, uniform, log_uniform, integer };

  std::string path = "";  // "optimizer.lr": what follows -- on the command line
  Kind kind = Kind::choice;
  std::vector<std::string> choices = {};  // as on the command line
  double low = 0, high = 0;               // both included, for integers too
  int64_t step = 1;                       // of integers
  bool log = false;                       // of integers: drawn evenly in their logarithm
  Mark mark = {};

  /// The value at `u` in [0, 1): the same probability mass for equal parts of it.
  [[nodiscard]] std::string value_at(double u) const;

  /// Every value, in order; none for uniform and log_uniform, which have no end of them.
  [[nodiscard]] std::vector<std::string> all_values() const;

  /// What to check before a sweep starts: every choice, or both ends.
  [[nodiscard]] std::vector<std::string> values_to_check() const;

  /// Whether `value`, as on the command line, belongs to the range.
  [[nodiscard]] bool contains(const std::string& value) const;

  /// "log_uniform [0.0001, 0.1]"
  [[nodiscard]] std::string str() const;
};

using Space = std::vector<Range>;

/// Reads the map below `space`; what is wrong becomes a problem.
[[nodiscard]] Space read_space(const ConfigNode& node, Problems& problems);

/// A value of a run file as one word after "--PATH=": read_yaml_value reads it back.
[[nodiscard]] std::string override_text(const ConfigNode& value);

}  // namespace levin
