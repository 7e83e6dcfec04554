// Runs a loop with the widest vectors of this machine's processor. A body is a struct whose run() is always_inline, so
// that it is compiled anew within each of the functions below:
//
//   struct Sum {
//     [[gnu::always_inline]] static inline double run(const float* x, int64_t n) { … }
//   };
//   const double sum = with_widest_vectors<Sum>(x, n);
//
// Files that use it are compiled with the options that metrics/CMakeLists.txt lists as loops.
#pragma once

namespace levin::metrics {

#if defined(__x86_64__) && defined(__GNUC__)

/// The vector instructions that a processor has.
enum class VectorWidth { base, avx2, avx512 };

inline VectorWidth widest_vectors() {
  static const VectorWidth widest = [] {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw")) {
      return VectorWidth::avx512;
    }
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? VectorWidth::avx2 : VectorWidth::base;
  }();
  return widest;
}

template <class Body, class... Args>
[[gnu::target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]] auto with_avx512(Args... args) {
  return Body::run(args...);
}

template <class Body, class... Args>
[[gnu::target("avx2,fma")]] auto with_avx2(Args... args) {
  return Body::run(args...);
}

template <class Body, class... Args>
auto with_widest_vectors(Args... args) {
  switch (widest_vectors()) {
    case VectorWidth::avx512: return with_avx512<Body>(args...);
    case VectorWidth::avx2: return with_avx2<Body>(args...);
    default: return Body::run(args...);
  }
}

#else

template <class Body, class... Args>
auto with_widest_vectors(Args... args) {
  return Body::run(args...);
}

#endif

}  // namespace levin::metrics
