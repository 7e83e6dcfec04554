#include "levin/data/loading/sum_tree.h"

#include <bit>

namespace levin {

SumTree::SumTree(int64_t size)
    : leaves_(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(size)))),
      nodes_(2 * static_cast<size_t>(leaves_), 0.0) {}

void SumTree::set(int64_t index, double value) {
  auto node = static_cast<size_t>(leaves_ + index);
  nodes_[node] = value;
  for (node /= 2; node > 0; node /= 2) nodes_[node] = nodes_[2 * node] + nodes_[2 * node + 1];
}

int64_t SumTree::find(double mass) const {
  size_t node = 1;
  while (node < static_cast<size_t>(leaves_)) {
    const double left = nodes_[2 * node];
    const bool goes_right = mass >= left && nodes_[2 * node + 1] > 0;  // rounding may leave a mass beyond the sum
    if (goes_right) mass -= left;
    node = 2 * node + (goes_right ? 1 : 0);
  }
  return static_cast<int64_t>(node) - leaves_;
}

}  // namespace levin
