#include "levin/core/openmp_threads.h"

#include <dlfcn.h>

namespace levin {

// Looked up by name, for it must be the OpenMP runtime that LibTorch brings; a LibTorch built without OpenMP has none,
// and its operators stay as they are.
void set_openmp_threads(int count) {
  using Set = void (*)(int);
  static const auto set = reinterpret_cast<Set>(::dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set != nullptr) set(count);
}

}  // namespace levin
