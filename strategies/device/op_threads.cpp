#include "levin/strategies/device/op_threads.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <algorithm>

namespace levin {

namespace {

// at::set_num_threads() would also change the number of threads that are yet to come; OpenMP's and MKL's own count for
// the calling thread alone. Looked up by name, for they must be those that LibTorch brings; one built without them has
// none, and its operators stay as they are.
int set_openmp(int count) {
  using Set = void (*)(int);
  static const auto set = reinterpret_cast<Set>(::dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  const int before = at::get_num_threads();  // LibTorch sets a thread's number when it is first asked for it
  if (set != nullptr) set(count);
  return before;
}

int set_mkl(int count) {
  using Set = int (*)(int);
  static const auto set = reinterpret_cast<Set>(::dlsym(RTLD_DEFAULT, "MKL_Set_Num_Threads_Local"));
  return set == nullptr ? 0 : set(count);
}

}  // namespace

int op_threads_share(size_t parts) {
  return std::max(1, at::get_num_threads() / std::max(1, static_cast<int>(parts)));
}

OpThreads::OpThreads(int count) : outer_(set_openmp(count)), outer_mkl_(set_mkl(count)) {}

OpThreads::~OpThreads() {
  set_openmp(outer_);
  set_mkl(outer_mkl_);
}

}  // namespace levin
