#include "levin/core/openmp_threads.h"

#include <dlfcn.h>

namespace levin {

// Looked up by name, because it must be LibTorch's OpenMP runtime; a LibTorch built without OpenMP has none, and its
// operators are not affected.
void set_openmp_threads(int count) {
  using Set = void (*)(int);
  static const auto set = reinterpret_cast<Set>(::dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set != nullptr) set(count);
}

}  // namespace levin
