#include "levin/libtorch/blas.h"

#include <dlfcn.h>

#include <filesystem>

namespace levin {

std::string reference_blas() {
  const void* const product = ::dlsym(RTLD_DEFAULT, "sgemm_");
  Dl_info found{};
  if (product == nullptr || ::dladdr(product, &found) == 0) return "";
  std::error_code ignored;
  const auto path = std::filesystem::canonical(found.dli_fname, ignored);
  // /usr/lib/x86_64-linux-gnu/blas/libblas.so.3.12.1; other libraries are in folders such as openblas-pthread
  return path.parent_path().filename() == "blas" ? path.string() : "";
}

}  // namespace levin
