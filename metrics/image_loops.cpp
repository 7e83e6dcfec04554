#include "levin/metrics/image_loops.h"

#include <algorithm>

#include "levin/metrics/widest_vectors.h"

namespace levin::metrics {

namespace {

// The five local means that the index consists of: of x, y, x^2, y^2 and xy.
constexpr int64_t kMeans = 5;

// The index within [0, size) of position `at`, which is up to size - 1 outside: the border itself is not repeated.
[[gnu::always_inline]] inline int64_t reflected(int64_t at, int64_t size) {
  if (at < 0) return -at;
  return at < size ? at : 2 * size - 2 - at;
}

template <class T>
[[gnu::always_inline]] inline double loaded(T value, const SimilarityWindow& window) {
  const double v = static_cast<double>(value);
  if (!window.clamps) return v;
  const double above = v < window.low ? window.low : v;
  return above > window.high ? window.high : above;
}

// One row of both planes with its borders, filtered horizontally: kMeans rows of `width`.
template <class T>
[[gnu::always_inline]] inline void filter_row(const T* x, const T* y, int64_t width, const SimilarityWindow& window,
                                              double* padded, double* into) {
  const int64_t taps = static_cast<int64_t>(window.horizontal.size());
  const int64_t pad = taps / 2;
  const int64_t wide = width + 2 * pad;
  double* px = padded;
  double* py = padded + wide;
  for (int64_t j = 0; j < pad; ++j) {
    px[j] = loaded(x[reflected(j - pad, width)], window);
    py[j] = loaded(y[reflected(j - pad, width)], window);
    px[pad + width + j] = loaded(x[reflected(width + j, width)], window);
    py[pad + width + j] = loaded(y[reflected(width + j, width)], window);
  }
  for (int64_t j = 0; j < width; ++j) {
    px[pad + j] = loaded(x[j], window);
    py[pad + j] = loaded(y[j], window);
  }
  std::fill_n(into, kMeans * width, 0.0);
  for (int64_t k = 0; k < taps; ++k) {
    const double weight = window.horizontal[static_cast<size_t>(k)];
    const double* tx = px + k;
    const double* ty = py + k;
#pragma omp simd
    for (int64_t j = 0; j < width; ++j) {
      const double wx = weight * tx[j];
      const double wy = weight * ty[j];
      into[j] += wx;
      into[width + j] += wy;
      into[2 * width + j] += wx * tx[j];
      into[3 * width + j] += wy * ty[j];
      into[4 * width + j] += wx * ty[j];
    }
  }
}

// The sum of the index over a row whose local means are given.
[[gnu::always_inline]] inline double row_similarity(const double* means, int64_t width,
                                                    const SimilarityWindow& window) {
  const double c1 = window.c1;
  const double c2 = window.c2;
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < width; ++j) {
    const double mx = means[j];
    const double my = means[width + j];
    const double sx = means[2 * width + j] - mx * mx;
    const double sy = means[3 * width + j] - my * my;
    const double sxy = means[4 * width + j] - mx * my;
    const double spread = (sx < 0 ? 0 : sx) + (sy < 0 ? 0 : sy);
    sum += (2 * mx * my + c1) * (2 * sxy + c2) / ((mx * mx + my * my + c1) * (spread + c2));
  }
  return sum;
}

struct PlaneSimilarity {
  template <class T>
  [[gnu::always_inline]] static inline double run(const T* x, const T* y, int64_t height, int64_t width,
                                                  const SimilarityWindow* window, double* rows, double* padded,
                                                  double* means) {
    const int64_t row = kMeans * width;
    for (int64_t i = 0; i < height; ++i)
      filter_row(x + i * width, y + i * width, width, *window, padded, rows + i * row);
    const int64_t taps = static_cast<int64_t>(window->vertical.size());
    double sum = 0;
    for (int64_t i = 0; i < height; ++i) {
      std::fill_n(means, row, 0.0);
      for (int64_t k = 0; k < taps; ++k) {
        const double weight = window->vertical[static_cast<size_t>(k)];
        const double* from = rows + reflected(i + k - taps / 2, height) * row;
#pragma omp simd
        for (int64_t j = 0; j < row; ++j) means[j] += weight * from[j];
      }
      sum += row_similarity(means, width, *window);
    }
    return sum / static_cast<double>(height * width);
  }
};

}  // namespace

template <class T>
double plane_similarity(const T* preds, const T* target, int64_t height, int64_t width,
                        const SimilarityWindow& window) {
  const size_t row = static_cast<size_t>(kMeans * width);
  std::vector<double> rows(static_cast<size_t>(height) * row);
  std::vector<double> padded(2 * (static_cast<size_t>(width) + window.horizontal.size()));
  std::vector<double> means(row);
  return with_widest_vectors<PlaneSimilarity>(preds, target, height, width, &window, rows.data(), padded.data(),
                                              means.data());
}

template double plane_similarity(const float*, const float*, int64_t, int64_t, const SimilarityWindow&);
template double plane_similarity(const double*, const double*, int64_t, int64_t, const SimilarityWindow&);

}  // namespace levin::metrics
