#include "levin/strategies/device/op_threads.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <algorithm>

#include "levin/core/process/threads.h"

namespace levin {

namespace {

int set_openmp(int count) {
  const int before = at::get_num_threads();
  set_openmp_threads(count);
  return before;
}

// MKL has a thread count for the calling thread as well; looked up by name, as OpenMP's is.
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
