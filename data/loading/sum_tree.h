// Numbers that change, with their sum: draws in proportion to them. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace levin {

/// A list of numbers >= 0, all 0 at first. Every sum in the tree is computed from the two numbers below it, so rounding
/// errors do not accumulate over updates.
class SumTree {
 public:
  /// Requires: size >= 1.
  explicit SumTree(int64_t size);

  /// Sets a number; takes time logarithmic in the size. Requires: index < size, value >= 0 and finite.
  void set(int64_t index, double value);
  [[nodiscard]] double operator[](int64_t index) const { return nodes_[static_cast<size_t>(leaves_ + index)]; }
  [[nodiscard]] double total() const { return nodes_[1]; }

  /// Returns the first index at which the sum of the numbers up to it exceeds `mass`. A uniform `mass` in [0, total)
  /// draws each index in proportion to its number, and never an index whose number is 0. Requires: total() > 0.
  [[nodiscard]] int64_t find(double mass) const;

 private:
  int64_t leaves_;             // the size, rounded up to a power of two
  std::vector<double> nodes_;  // node n has the children 2 n and 2 n + 1; the root is 1
};

}  // namespace levin
