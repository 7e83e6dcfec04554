#include "levin/metrics/score_loops.h"

#include <ATen/Parallel.h>
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "levin/metrics/widest_vectors.h"

namespace levin::metrics {

namespace {

constexpr int64_t kCopied = 2048;  // 8 kB: what was copied is still in the first cache when it is looked at

struct AnyOutside {
  [[gnu::always_inline]] static inline bool run(const float* scores, int64_t count) {
    int32_t outside = 0;
#pragma omp simd reduction(| : outside)
    for (int64_t i = 0; i < count; ++i) {
      const int32_t is_inside = (scores[i] >= kLowestProbability) & (scores[i] <= kHighestProbability);
      outside |= is_inside ^ 1;  // of nan neither comparison holds
    }
    return outside != 0;
  }
};

// A block is read twice, for its highest value and for the sum, in quarters: four sums do not wait for each other.
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

#if defined(__x86_64__) && defined(__GNUC__)
#define LEVIN_AVX512 [[gnu::target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]]

// The same polynomial with AVX-512, which finds f in one instruction and scales by 2^n without a limit: each value is
// read once, and sixteen values take twelve instructions instead of fifteen.

// exp(x - top) to about 1e-7 of itself, 0 for -infinity.
LEVIN_AVX512 inline __m512 exps_of(__m512 x, float top) {
  const __m512 y = _mm512_mul_ps(_mm512_sub_ps(x, _mm512_set1_ps(top)), _mm512_set1_ps(kLog2E));
  const __m512 f = _mm512_reduce_ps(y, _MM_FROUND_TO_NEAREST_INT);  // y less the nearest integer
  __m512 p = _mm512_set1_ps(1.3395267e-3F);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.6182959e-3F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.5503326e-2F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.4022651e-1F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.9314718e-1F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0F));
  // Without a mask GCC 12 warns of its own header.
  return _mm512_mask_scalef_ps(p, 0xffff, p, _mm512_sub_ps(y, f));
}

// Their sum, in double after every 1024 values.
LEVIN_AVX512 double sum_of_exps(const float* x, int64_t count, float top) {
  double sum = 0;
  for (int64_t begin = 0; begin < count; begin += 1024) {
    const int64_t end = std::min(count, begin + 1024);
    __m512 a = _mm512_setzero_ps(), b = a, c = a, d = a;  // four sums do not wait for each other
    int64_t i = begin;
    for (; i + 64 <= end; i += 64) {
      a = _mm512_add_ps(a, exps_of(_mm512_loadu_ps(x + i), top));
      b = _mm512_add_ps(b, exps_of(_mm512_loadu_ps(x + i + 16), top));
      c = _mm512_add_ps(c, exps_of(_mm512_loadu_ps(x + i + 32), top));
      d = _mm512_add_ps(d, exps_of(_mm512_loadu_ps(x + i + 48), top));
    }
    for (; i < end; i += 16) {
      const auto rest = static_cast<__mmask16>((1U << std::min<int64_t>(16, end - i)) - 1U);
      const __m512 nothing = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
      a = _mm512_add_ps(a, exps_of(_mm512_mask_loadu_ps(nothing, rest, x + i), top));
    }
    alignas(64) float lanes[16];
    _mm512_store_ps(lanes, _mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d)));
    for (const float lane : lanes) sum += static_cast<double>(lane);
  }
  return sum;
}

// The highest of the first values stands for the highest of all: a sum in which it is too low for the others becomes
// infinite, one with a nan is nan, and such a row is computed as everywhere else.
LEVIN_AVX512 void rows_read_once(const float* x, int64_t rows, int64_t columns, double* into) {
  for (int64_t r = 0; r < rows; ++r, x += columns) {
    const float top = highest_of(x, std::min<int64_t>(columns, 64), -std::numeric_limits<float>::infinity());
    const double sum = sum_of_exps(x, columns, top);
    const bool fits = std::isfinite(sum) && sum > 0;
    into[r] = fits ? static_cast<double>(top) + std::log(sum) : RowLogSumExp::of_row(x, columns);
  }
}

#undef LEVIN_AVX512
#endif

template <class T>
void rows_at_once(const T* x, int64_t rows, int64_t columns, double* into) {
#if defined(__x86_64__) && defined(__GNUC__)
  if constexpr (std::is_same_v<T, float>) {
    if (widest_vectors() == VectorWidth::avx512) return rows_read_once(x, rows, columns, into);
  }
#endif
  with_widest_vectors<RowLogSumExp>(x, rows, columns, into);
}

}  // namespace

bool any_outside_unit(const float* scores, int64_t count) {
  for (int64_t i = 0; i < count; i += kCopied) {
    if (with_widest_vectors<AnyOutside>(scores + i, std::min(kCopied, count - i))) return true;
  }
  return false;
}

bool copy_and_look(const float* scores, int64_t count, float* into) {
  bool outside = false;
  for (int64_t i = 0; i < count; i += kCopied) {
    const int64_t part = std::min(kCopied, count - i);
    std::memcpy(into + i, scores + i, static_cast<size_t>(part) * sizeof(float));
    outside = outside || with_widest_vectors<AnyOutside>(scores + i, part);
  }
  return outside;
}

template <class T>
void row_log_sum_exp(const T* x, int64_t rows, int64_t columns, double* into) {
  const int64_t rows_at_least = std::max<int64_t>(1, 32768 / std::max<int64_t>(1, columns));
  at::parallel_for(0, rows, rows_at_least, [&](int64_t begin, int64_t end) {
    rows_at_once(x + begin * columns, end - begin, columns, into + begin);
  });
}

template void row_log_sum_exp(const float*, int64_t, int64_t, double*);
template void row_log_sum_exp(const double*, int64_t, int64_t, double*);

}  // namespace levin::metrics
