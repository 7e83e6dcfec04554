#include "levin/metrics/pair_loops.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "levin/metrics/widest_vectors.h"

namespace levin::metrics {

namespace {

// Long arrays are summed in parts of this many elements, by all threads, and the parts are added in order: the sum does
// not depend on the number of threads.
constexpr int64_t kPart = 32768;

template <class SumOfPart>
double sum_of_parts(int64_t count, SumOfPart sum_of_part) {
  if (count <= kPart) return sum_of_part(0, count);
  std::vector<double> sums(static_cast<size_t>((count + kPart - 1) / kPart));
  at::parallel_for(0, static_cast<int64_t>(sums.size()), 2, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      sums[static_cast<size_t>(k)] = sum_of_part(k * kPart, std::min(count, (k + 1) * kPart) - k * kPart);
    }
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

template <bool squared>
struct Errors {
  template <class T>
  [[gnu::always_inline]] static inline double run(const T* x, const T* y, int64_t count) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; ++i) {
      const double error = static_cast<double>(x[i]) - static_cast<double>(y[i]);
      sum += squared ? error * error : std::abs(error);
    }
    return sum;
  }
};

struct ClampedSquaredErrors {
  // A comparison with nan is false: nan stays nan, as in at::clamp.
  [[gnu::always_inline]] static inline double clamped(double value, double low, double high) {
    const double above = value < low ? low : value;
    return above > high ? high : above;
  }
  template <class T>
  [[gnu::always_inline]] static inline double run(const T* x, const T* y, int64_t count, double low, double high) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; ++i) {
      const double error =
          clamped(static_cast<double>(x[i]), low, high) - clamped(static_cast<double>(y[i]), low, high);
      sum += error * error;
    }
    return sum;
  }
};

template <bool squared>
struct ErrorsOfColumns {
  template <class T>
  [[gnu::always_inline]] static inline void run(const T* x, const T* y, int64_t rows, int64_t columns, double* into) {
    for (int64_t r = 0; r < rows; ++r, x += columns, y += columns) {
#pragma omp simd
      for (int64_t j = 0; j < columns; ++j) {
        const double error = static_cast<double>(x[j]) - static_cast<double>(y[j]);
        into[j] += squared ? error * error : std::abs(error);
      }
    }
  }
};

// Column `columns` apart; one column is contiguous, and its loops are vectors. Two passes, as in MomentsOfColumn.
struct TargetSumsOfColumn {
  template <class T>
  [[gnu::always_inline]] static inline TargetSums run(const T* x, const T* y, int64_t rows, int64_t stride) {
    const double first = static_cast<double>(y[0]);
    double target = 0, squared_error = 0;
#pragma omp simd reduction(+ : target, squared_error)
    for (int64_t r = 0; r < rows; ++r) {
      const double truth = static_cast<double>(y[r * stride]);
      const double error = static_cast<double>(x[r * stride]) - truth;
      target += truth - first;
      squared_error += error * error;
    }
    const double mean = first + target / static_cast<double>(rows);
    double squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t r = 0; r < rows; ++r) {
      const double left = static_cast<double>(y[r * stride]) - mean;
      squares += left * left;
    }
    return {mean, squares, squared_error};
  }
};

// Two passes. The first subtracts the first value, so that equal values have exactly their own value as mean.
struct MomentsOfColumn {
  template <class T>
  [[gnu::always_inline]] static inline Moments run(const T* x, const T* y, int64_t rows, int64_t stride) {
    const double first_x = static_cast<double>(x[0]);
    const double first_y = static_cast<double>(y[0]);
    double sum_x = 0, sum_y = 0;
#pragma omp simd reduction(+ : sum_x, sum_y)
    for (int64_t r = 0; r < rows; ++r) {
      sum_x += static_cast<double>(x[r * stride]) - first_x;
      sum_y += static_cast<double>(y[r * stride]) - first_y;
    }
    const double mean_x = first_x + sum_x / static_cast<double>(rows);
    const double mean_y = first_y + sum_y / static_cast<double>(rows);
    double squares_x = 0, squares_y = 0, products = 0;
#pragma omp simd reduction(+ : squares_x, squares_y, products)
    for (int64_t r = 0; r < rows; ++r) {
      const double dx = static_cast<double>(x[r * stride]) - mean_x;
      const double dy = static_cast<double>(y[r * stride]) - mean_y;
      squares_x += dx * dx;
      squares_y += dy * dy;
      products += dx * dy;
    }
    return {mean_x, mean_y, squares_x, squares_y, products};
  }
};

struct Products {
  double xy = 0, xx = 0, yy = 0;
};

// Sums of each of four rows, as float.
using Eight [[gnu::vector_size(32)]] = float;
using FourSums [[gnu::vector_size(16)]] = float;

[[gnu::always_inline]] inline FourSums halves(Eight v) {
  return __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
}

// The sums of four vectors: twelve additions, where each alone would need seven.
[[gnu::always_inline]] inline FourSums sums_of(const Eight& a, const Eight& b, const Eight& c, const Eight& d) {
  const FourSums w = halves(a), x = halves(b), y = halves(c), z = halves(d);
  const FourSums wx = __builtin_shufflevector(w, x, 0, 4, 1, 5) + __builtin_shufflevector(w, x, 2, 6, 3, 7);
  const FourSums yz = __builtin_shufflevector(y, z, 0, 4, 1, 5) + __builtin_shufflevector(y, z, 2, 6, 3, 7);
  return __builtin_shufflevector(wx, yz, 0, 1, 4, 5) + __builtin_shufflevector(wx, yz, 2, 3, 6, 7);
}

struct RowCosines {
  static constexpr int64_t kAtOnce = 256;  // summed as float over this many values, then in double

  template <class A, class T>
  [[gnu::always_inline]] static inline Products products(const T* x, const T* y, int64_t columns, int64_t at_once) {
    Products sums;
    for (int64_t begin = 0; begin < columns; begin += at_once) {
      const int64_t end = std::min(columns, begin + at_once);
      A xy = 0, xx = 0, yy = 0;
#pragma omp simd reduction(+ : xy, xx, yy)
      for (int64_t j = begin; j < end; ++j) {
        const A a = static_cast<A>(x[j]);
        const A b = static_cast<A>(y[j]);
        xy += a * b;
        xx += a * a;
        yy += b * b;
      }
      sums.xy += static_cast<double>(xy);
      sums.xx += static_cast<double>(xx);
      sums.yy += static_cast<double>(yy);
    }
    return sums;
  }

  // Four rows of a multiple of 8 columns.
  [[gnu::always_inline]] static inline void four_rows(const float* x, const float* y, int64_t columns, double* xy,
                                                      double* xx, double* yy) {
    for (int64_t begin = 0; begin < columns; begin += kAtOnce) {
      const int64_t end = std::min(columns, begin + kAtOnce);
      Eight products[4] = {}, squares_x[4] = {}, squares_y[4] = {};
      for (int r = 0; r < 4; ++r) {
        Eight ab{}, aa{}, bb{};
        for (int64_t j = begin; j < end; j += 8) {
          Eight a, b;
          std::memcpy(&a, x + r * columns + j, sizeof a);
          std::memcpy(&b, y + r * columns + j, sizeof b);
          ab += a * b;
          aa += a * a;
          bb += b * b;
        }
        products[r] = ab;
        squares_x[r] = aa;
        squares_y[r] = bb;
      }
      const FourSums ab = sums_of(products[0], products[1], products[2], products[3]);
      const FourSums aa = sums_of(squares_x[0], squares_x[1], squares_x[2], squares_x[3]);
      const FourSums bb = sums_of(squares_y[0], squares_y[1], squares_y[2], squares_y[3]);
      for (int r = 0; r < 4; ++r) {
        xy[r] += static_cast<double>(ab[r]);
        xx[r] += static_cast<double>(aa[r]);
        yy[r] += static_cast<double>(bb[r]);
      }
    }
  }

  // The roots and divisions of many rows are one loop of vectors.
  template <class T>
  [[gnu::always_inline]] static inline void run(const T* x, const T* y, int64_t rows, int64_t columns, double* into) {
    constexpr double low = 1e-30, high = 1e37;  // squares of floats that lost nothing
    constexpr int64_t kRows = 64;
    for (int64_t begin = 0; begin < rows; begin += kRows) {
      const int64_t count = std::min(kRows, rows - begin);
      double xy[kRows] = {}, xx[kRows] = {}, yy[kRows] = {};
      int64_t r = 0;
      if constexpr (std::is_same_v<T, float>) {
        for (; columns % 8 == 0 && r + 4 <= count; r += 4) {
          four_rows(x + r * columns, y + r * columns, columns, xy + r, xx + r, yy + r);
        }
      }
      for (; r < count; ++r) {
        const Products sums = products<T>(x + r * columns, y + r * columns, columns, kAtOnce);
        xy[r] = sums.xy;
        xx[r] = sums.xx;
        yy[r] = sums.yy;
      }
      for (r = 0; r < count; ++r) {
        if (xx[r] > low && xx[r] < high && yy[r] > low && yy[r] < high) continue;
        const Products sums = products<double>(x + r * columns, y + r * columns, columns, columns);
        xy[r] = sums.xy;
        xx[r] = sums.xx;
        yy[r] = sums.yy;
      }
#pragma omp simd
      for (int64_t k = 0; k < count; ++k) into[begin + k] = xy[k] / (std::sqrt(xx[k]) * std::sqrt(yy[k]));
      x += count * columns;
      y += count * columns;
    }
  }
};

template <bool has_weight>
struct ValueSumsOf {
  template <class T>
  [[gnu::always_inline]] static inline ValueSums run(const T* value, const T* weight, int64_t count) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    double weighted = 0, weights = 0, lowest = infinity, highest = -infinity, nans = 0;
#pragma omp simd reduction(+ : weighted, weights, nans) reduction(min : lowest) reduction(max : highest)
    for (int64_t i = 0; i < count; ++i) {
      const double v = static_cast<double>(value[i]);
      const double w = has_weight ? static_cast<double>(weight[i]) : 1.0;
      const bool is_nan = v != v || w != w;
      weighted += is_nan ? 0.0 : v * w;
      weights += is_nan ? 0.0 : w;
      nans += is_nan ? 1.0 : 0.0;
      const double low = is_nan ? infinity : v;
      const double high = is_nan ? -infinity : v;
      lowest = low < lowest ? low : lowest;
      highest = high > highest ? high : highest;
    }
    return {weighted, weights, lowest, highest, static_cast<int64_t>(nans)};
  }
};

}  // namespace

template <bool squared, class T>
void add_errors(const T* x, const T* y, int64_t rows, int64_t columns, double* into) {
  if (columns != 1) return with_widest_vectors<ErrorsOfColumns<squared>>(x, y, rows, columns, into);
  *into += sum_of_parts(rows, [=](int64_t begin, int64_t count) {
    return with_widest_vectors<Errors<squared>>(x + begin, y + begin, count);
  });
}

template <class T>
double clamped_squared_errors(const T* x, const T* y, int64_t count, double low, double high) {
  return sum_of_parts(count, [=](int64_t begin, int64_t part) {
    return with_widest_vectors<ClampedSquaredErrors>(x + begin, y + begin, part, low, high);
  });
}

template <class T>
std::vector<TargetSums> target_sums(const T* preds, const T* target, int64_t rows, int64_t columns) {
  std::vector<TargetSums> all;
  for (int64_t j = 0; j < columns; ++j) {
    all.push_back(columns == 1 ? with_widest_vectors<TargetSumsOfColumn>(preds, target, rows, int64_t{1})
                               : TargetSumsOfColumn::run(preds + j, target + j, rows, columns));
  }
  return all;
}

template <class T>
std::vector<Moments> moments(const T* x, const T* y, int64_t rows, int64_t columns) {
  std::vector<Moments> all;
  for (int64_t j = 0; j < columns; ++j) {
    all.push_back(columns == 1 ? with_widest_vectors<MomentsOfColumn>(x, y, rows, int64_t{1})
                               : MomentsOfColumn::run(x + j, y + j, rows, columns));
  }
  return all;
}

template <class T>
void row_cosines(const T* x, const T* y, int64_t rows, int64_t columns, double* into) {
  with_widest_vectors<RowCosines>(x, y, rows, columns, into);
}

template <class T>
ValueSums value_sums(const T* value, const T* weight, int64_t count) {
  return weight == nullptr ? with_widest_vectors<ValueSumsOf<false>>(value, weight, count)
                           : with_widest_vectors<ValueSumsOf<true>>(value, weight, count);
}

#define LEVIN_PAIR_LOOPS(T)                                                            \
  template void add_errors<false>(const T*, const T*, int64_t, int64_t, double*);      \
  template void add_errors<true>(const T*, const T*, int64_t, int64_t, double*);       \
  template double clamped_squared_errors(const T*, const T*, int64_t, double, double); \
  template std::vector<TargetSums> target_sums(const T*, const T*, int64_t, int64_t);  \
  template std::vector<Moments> moments(const T*, const T*, int64_t, int64_t);         \
  template void row_cosines(const T*, const T*, int64_t, int64_t, double*);            \
  template ValueSums value_sums(const T*, const T*, int64_t)

LEVIN_PAIR_LOOPS(float);
LEVIN_PAIR_LOOPS(double);

#undef LEVIN_PAIR_LOOPS

}  // namespace levin::metrics
