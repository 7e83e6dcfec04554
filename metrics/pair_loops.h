// Sums over two arrays in the CPU's memory, of float or double, added up in double. Arrays are matrices of `rows` rows
// and `columns` columns; each sum has a value per column.
#pragma once

#include <cstdint>
#include <vector>

namespace levin::metrics {

/// Adds to `into` the sum of (x - y)^2, or of |x - y|.
template <bool squared, class T>
void add_errors(const T* x, const T* y, int64_t rows, int64_t columns, double* into);

/// The sum of (x - y)^2 with both clamped to [low, high].
template <class T>
double clamped_squared_errors(const T* x, const T* y, int64_t count, double low, double high);

/// What R2Score needs of a column: the targets' mean, their sum of squares around it, and the sum of squared errors.
struct TargetSums {
  double mean = 0, squares = 0, squared_error = 0;
};
template <class T>
std::vector<TargetSums> target_sums(const T* preds, const T* target, int64_t rows, int64_t columns);

/// Means of a column, and sums of squares and products around them.
struct Moments {
  double mean_x = 0, mean_y = 0, squares_x = 0, squares_y = 0, products = 0;
};
template <class T>
std::vector<Moments> moments(const T* x, const T* y, int64_t rows, int64_t columns);

/// The cosine of the angle between row r of x and of y; nan if one of them is 0.
template <class T>
void row_cosines(const T* x, const T* y, int64_t rows, int64_t columns, double* into);

/// What MeanMetric and its siblings need. Values that are nan, or have a weight that is nan, are counted and left out.
struct ValueSums {
  double weighted = 0, weight = 0;
  double lowest = 0, highest = 0;  // of the values that are counted; infinities if there are none
  int64_t nans = 0;
};
/// `weight` may be null: 1 for each.
template <class T>
ValueSums value_sums(const T* value, const T* weight, int64_t count);

}  // namespace levin::metrics
