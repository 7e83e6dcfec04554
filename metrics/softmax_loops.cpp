#include "levin/metrics/softmax_loops.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "levin/metrics/widest_vectors.h"

namespace levin::metrics {

namespace {

// Read twice, for its highest value and for the sum, in quarters: four sums do not wait for each other.
constexpr int64_t kQuarter = 64;
constexpr int64_t kBlock = 4 * kQuarter;

constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it leaves the nearest integer in the last bits
constexpr float kLog2E = 1.44269504F;

// 2^(n + f) for |f| <= 1/2, to about 1e-7 of itself: a polynomial for 2^f, and n added to its exponent. The last bits
// of `shifted` are n.
[[gnu::always_inline]] inline float power_of_two(float shifted, float f) {
  float p = 1.3395267e-3F;
  p = p * f + 9.6182959e-3F;
  p = p * f + 5.5503326e-2F;
  p = p * f + 2.4022651e-1F;
  p = p * f + 6.9314718e-1F;
  p = p * f + 1.0F;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(shifted) << 23));
}

// exp(x - highest) for x <= highest, without a branch or a call, so that it becomes vectors. It stays at 1e-37 for
// small x; nan stays nan.
template <class T>
struct Exp;

template <>
struct Exp<float> {
  explicit Exp(float of_highest) : highest(of_highest) {}
  [[gnu::always_inline]] float operator()(float x) const {
    const float scaled = (x - highest) * kLog2E;
    const float power = scaled < -125.0F ? -125.0F : scaled;
    const float shifted = power + kRound;
    return power_of_two(shifted, power - (shifted - kRound));
  }
  float highest;
};

template <>
struct Exp<double> {
  explicit Exp(double of_highest) : highest(of_highest) {}
  [[gnu::always_inline]] double operator()(double x) const { return std::exp(x - highest); }
  double highest;
};

template <class T>
[[gnu::always_inline]] inline T highest_of_block(const T* x, T highest) {
  T a = highest, b = highest, c = highest, d = highest;
#pragma omp simd reduction(max : a, b, c, d)
  for (int64_t j = 0; j < kQuarter; ++j) {
    a = x[j] > a ? x[j] : a;
    b = x[kQuarter + j] > b ? x[kQuarter + j] : b;
    c = x[2 * kQuarter + j] > c ? x[2 * kQuarter + j] : c;
    d = x[3 * kQuarter + j] > d ? x[3 * kQuarter + j] : d;
  }
  return std::max(std::max(a, b), std::max(c, d));
}

template <class T>
[[gnu::always_inline]] inline T highest_of(const T* x, int64_t count, T highest) {
  if (count == kBlock) return highest_of_block(x, highest);
  T top = highest;
#pragma omp simd reduction(max : top)
  for (int64_t j = 0; j < count; ++j) top = x[j] > top ? x[j] : top;
  return top;
}

template <class T, class Exp>
[[gnu::always_inline]] inline double sum_of_block(const T* x, const Exp exp) {
  T a = 0, b = 0, c = 0, d = 0;
#pragma omp simd reduction(+ : a, b, c, d)
  for (int64_t j = 0; j < kQuarter; ++j) {
    a += exp(x[j]);
    b += exp(x[kQuarter + j]);
    c += exp(x[2 * kQuarter + j]);
    d += exp(x[3 * kQuarter + j]);
  }
  return (static_cast<double>(a) + static_cast<double>(b)) + (static_cast<double>(c) + static_cast<double>(d));
}

template <class T, class Exp>
[[gnu::always_inline]] inline double sum_of_exps(const T* x, int64_t count, const Exp exp) {
  if (count == kBlock) return sum_of_block(x, exp);
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < count; ++j) sum += exp(x[j]);
  return static_cast<double>(sum);
}

struct RowLogSumExp {
  template <class T>
  [[gnu::always_inline]] static inline double of_row(const T* x, int64_t count) {
    T highest = -std::numeric_limits<T>::infinity();
    double sum = 0;
    for (int64_t begin = 0; begin < count; begin += kBlock) {
      const int64_t size = std::min(count - begin, kBlock);
      const T* block = x + begin;
      const T top = highest_of(block, size, highest);
      if (top > highest) {
        if (begin > 0) sum *= std::exp(static_cast<double>(highest) - static_cast<double>(top));
        highest = top;
      }
      sum += sum_of_exps(block, size, Exp<T>(highest));
    }
    return static_cast<double>(highest) + std::log(sum);
  }

  template <class T>
  [[gnu::always_inline]] static inline void run(const T* x, int64_t rows, int64_t columns, double* into) {
    for (int64_t r = 0; r < rows; ++r) into[r] = of_row(x + r * columns, columns);
  }
};

}  // namespace

template <class T>
void row_log_sum_exp(const T* x, int64_t rows, int64_t columns, double* into) {
  const int64_t rows_at_least = std::max<int64_t>(1, 32768 / std::max<int64_t>(1, columns));
  at::parallel_for(0, rows, rows_at_least, [&](int64_t begin, int64_t end) {
    with_widest_vectors<RowLogSumExp>(x + begin * columns, end - begin, columns, into + begin);
  });
}

template void row_log_sum_exp(const float*, int64_t, int64_t, double*);
template void row_log_sum_exp(const double*, int64_t, int64_t, double*);

}  // namespace levin::metrics
