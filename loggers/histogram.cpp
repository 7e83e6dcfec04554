#include "levin/loggers/histogram.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "levin/core/options/error.h"

namespace levin {

namespace {

// The edges on the side above 0: 0, 1e-12, 1.1e-12, … up to 1e20, and the largest number.
std::vector<double> magnitudes() {
  std::vector<double> edges = {0};
  for (double edge = 1e-12; edge < 1e20; edge *= 1.1) edges.push_back(edge);
  edges.push_back(std::numeric_limits<double>::max());
  return edges;
}

// Finds the bin of a number without a search: the exponent and four bits of the mantissa select a range that is
// narrower than a bin, in which there is at most one edge.
class BinFinder {
 public:
  BinFinder() : edges_(magnitudes()) {
    for (uint64_t cell = 0; cell < kCells; ++cell) {
      const auto smallest = std::bit_cast<double>(cell << kShift);
      const auto above = std::upper_bound(edges_.begin(), edges_.end(), smallest);
      first_[cell] = static_cast<uint16_t>(std::min<size_t>(above - edges_.begin() - 1, bins() - 1));
    }
  }

  [[nodiscard]] const std::vector<double>& edges() const { return edges_; }
  /// On one side of 0.
  [[nodiscard]] size_t bins() const { return edges_.size() - 1; }

  /// k with edges[k] <= number < edges[k + 1]; the last bin includes its upper edge. `number` is finite, and >= 0.
  [[nodiscard]] size_t of(double number) const {
    const size_t k = first_[std::bit_cast<uint64_t>(number) >> kShift];
    return k + (k + 1 < bins() && number >= edges_[k + 1] ? 1 : 0);
  }
  /// k with edges[k] < number <= edges[k + 1], for the other side. `number` is finite, and > 0.
  [[nodiscard]] size_t mirrored(double number) const {
    const size_t k = of(number);
    return k > 0 && number == edges_[k] ? k - 1 : k;
  }

 private:
  static constexpr int kShift = 48;
  static constexpr uint64_t kCells = uint64_t{0x7ff0} + 1;  // up to infinity; without a sign

  std::vector<double> edges_;
  std::array<uint16_t, kCells> first_ = {};
};

const BinFinder& bin_finder() {
  static const BinFinder finder;
  return finder;
}

class Counter {
 public:
  Counter() : above_(finder_.bins(), 0), below_(finder_.bins(), 0) {}

  template <class T>
  void add(const T* values, int64_t count) {
    for (int64_t k = 0; k < count; ++k) add(static_cast<double>(values[k]));
  }

  Histogram histogram() {
    if (h_.count == 0) return h_;
    const auto& edges = finder_.edges();
    const auto bins = static_cast<int64_t>(finder_.bins());
    const auto count_at = [&](int64_t k) { return k >= 0 ? above_[k] : below_[-k - 1]; };
    int64_t first = -bins;
    int64_t last = bins - 1;
    while (count_at(first) == 0) ++first;
    while (count_at(last) == 0) --last;
    for (int64_t k = first; k <= last + 1; ++k) h_.edges.push_back(k >= 0 ? edges[k] : -edges[-k]);
    for (int64_t k = first; k <= last; ++k) h_.counts.push_back(static_cast<double>(count_at(k)));
    return h_;
  }

 private:
  void add(double value) {
    if (!std::isfinite(value)) {
      ++h_.nonfinite;
      return;
    }
    h_.min = h_.count == 0 ? value : std::min(h_.min, value);
    h_.max = h_.count == 0 ? value : std::max(h_.max, value);
    h_.count += 1;
    h_.sum += value;
    h_.sum_squares += value * value;
    if (value < 0) {
      ++below_[finder_.mirrored(-value)];
    } else {
      ++above_[finder_.of(std::abs(value))];  // of -0.0 too
    }
  }

  const BinFinder& finder_ = bin_finder();
  std::vector<int64_t> above_;  // from 0 upwards
  std::vector<int64_t> below_;  // from 0 downwards
  Histogram h_ = {};
};

}  // namespace

Histogram histogram_of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0) {
    throw Error("histogram_of: the tensor is " + std::string(tensor.defined() ? "empty" : "undefined") +
                ", and has no distribution.");
  }
  if (tensor.is_complex()) {
    throw Error(
        "histogram_of: complex numbers have no order. Log the histogram of their abs(), real or imaginary part.");
  }
  const bool narrow = tensor.is_floating_point() && tensor.scalar_type() != at::kDouble;
  const at::Tensor values = tensor.detach().to(at::kCPU, narrow ? at::kFloat : at::kDouble).contiguous();
  Counter counter;
  narrow ? counter.add(values.const_data_ptr<float>(), values.numel())
         : counter.add(values.const_data_ptr<double>(), values.numel());
  return counter.histogram();
}

}  // namespace levin
